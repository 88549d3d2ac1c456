package nodetools

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/ws/client"
)

const (
	maxPushed      = 1000     // A2UI objects kept, the latest ones
	maxPushedBytes = 1 << 20  // of them together
	maxEvents      = 16       // that wait for the page
	maxValue       = 64 << 10 // bytes of a value that eval returns
)

// Canvas is a page on loopback that shows what agents present. Its owner runs Serve.
type Canvas struct {
	urls  publicnet.Guard
	token string // in the path: hides the page from other users of this machine
	frame string // in the path of the presented page, which must not learn the token

	open func(ctx context.Context, url string) error // opens the page in a browser; nil: the person does
	ask  func(ctx context.Context, url string) error // asks the person about a page to present; nil: no question
	turn chan struct{}                               // capacity 1: held while a page is asked about and opened

	mu      sync.Mutex
	shown   shown
	page    chan event    // of the open page; nil without one
	arrived chan struct{} // closed when a page opens
	address string        // host and port of the page
	ticket  string        // for one visit, which leads to the page; empty: none is open
	waiting map[string]chan value
}

type shown struct {
	Visible bool              `json:"visible"`
	URL     string            `json:"url"`
	Content []json.RawMessage `json:"content"` // A2UI objects

	bytes int
}

type event struct {
	kind string // state or eval
	data any
}

// value is the result of an eval in the page.
type value struct {
	ID    string `json:"id"`
	OK    bool   `json:"ok"`
	Value string `json:"value"` // JSON, or the text of an error
}

// NewCanvas returns a canvas. If private is set, it also shows pages of private networks and of this machine.
func NewCanvas(private bool) *Canvas {
	return &Canvas{
		urls: publicnet.Guard{AllowPrivate: private}, token: rand.Text(), frame: rand.Text(),
		waiting: make(map[string]chan value), arrived: make(chan struct{}), turn: make(chan struct{}, 1),
		shown: shown{Content: []json.RawMessage{}},
	}
}

// OpenWith sets what opens the page in a browser when something is presented and no page is open. Other users of this
// machine may see its url, for example as an argument of the browser: it leads to the page once. Call it before Serve.
func (c *Canvas) OpenWith(open func(ctx context.Context, url string) error) { c.open = open }

// AskWith sets what asks the person about each page before the canvas shows it. Call it before Serve.
func (c *Canvas) AskWith(ask func(ctx context.Context, url string) error) { c.ask = ask }

// openTime is how long a browser may take to open the page.
const openTime = 10 * time.Second

// newTicket returns an address that leads to the page once.
func (c *Canvas) newTicket() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ticket = rand.Text()
	return "http://" + c.address + openPath + c.ticket
}

// takeTicket ends the last ticket, and reports whether text is that ticket.
func (c *Canvas) takeTicket(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != "" && text != c.ticket {
		return false
	}
	c.ticket = ""
	return text != ""
}

// opens makes sure that a page is open, if there is something to open it with. The turn must be held.
func (c *Canvas) opens(ctx context.Context) error {
	c.mu.Lock()
	there, arrived := c.page != nil, c.arrived
	c.mu.Unlock()
	if there || c.open == nil {
		return nil
	}
	defer c.takeTicket("")
	if err := c.open(ctx, c.newTicket()); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, openTime)
	defer stop()
	select {
	case <-arrived:
	case <-ctx.Done(): // the result says that no page is open
	}
	return nil
}

// errNoPage says what to do if no browser shows the canvas.
var errNoPage = errors.New("no page is open: the person must open the canvas in a browser; " +
	"the terminal of farhand device shows its address")

func (c *Canvas) present(ctx context.Context, args struct{ URL string }) (any, error) {
	release, err := c.allow(ctx, args.URL)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := c.opens(ctx); err != nil {
		return nil, err
	}
	return c.change(args.URL, func(s *shown) { s.Visible = true })
}

// allow takes the turn, and asks about a page unless the canvas has it. release must be called if there is no error.
func (c *Canvas) allow(ctx context.Context, url string) (release func(), err error) {
	if url != "" {
		if err := c.urls.CheckURL(url); err != nil {
			return nil, err
		}
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	release = func() { <-c.turn }
	c.mu.Lock()
	known := url == "" || url == c.shown.URL
	c.mu.Unlock()
	if c.ask != nil && !known {
		if err := c.ask(ctx, url); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

func (c *Canvas) hide(context.Context, struct{}) (any, error) {
	return c.change("", func(s *shown) { s.Visible = false })
}

func (c *Canvas) navigate(ctx context.Context, args struct{ URL string }) (any, error) {
	release, err := c.allow(ctx, args.URL)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.change(args.URL, func(*shown) {})
}

func (c *Canvas) reset(context.Context, struct{}) (any, error) {
	return c.change("", func(s *shown) { s.Content, s.bytes = []json.RawMessage{}, 0 })
}

func (c *Canvas) push(_ context.Context, args struct{ JSONL string }) (any, error) {
	var added []json.RawMessage
	for line := range strings.Lines(args.JSONL) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if line[0] != '{' || !json.Valid([]byte(line)) {
			return nil, fmt.Errorf("line %d is not a JSON object", len(added)+1)
		}
		added = append(added, json.RawMessage(line))
	}
	return c.change("", func(s *shown) {
		for _, line := range added {
			s.Content, s.bytes = append(s.Content, line), s.bytes+len(line)
		}
		for len(s.Content) > maxPushed || s.bytes > maxPushedBytes {
			s.bytes -= len(s.Content[0])
			s.Content = s.Content[1:]
		}
	})
}

// change changes what is shown, and sends it to the page. url is empty or allowed.
func (c *Canvas) change(url string, change func(*shown)) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if url != "" {
		c.shown.URL = url
	}
	change(&c.shown)
	if !c.tell(event{"state", c.shown}) {
		return "done; no page is open, so it is not visible yet", nil
	}
	return "done", nil
}

// tell sends an event to the page, and reports whether a page is open. c.mu must be held. A page that does not read is
// closed: it reconnects, and receives the whole state again.
func (c *Canvas) tell(e event) bool {
	if c.page == nil {
		return false
	}
	select {
	case c.page <- e:
		return true
	default:
		close(c.page)
		c.page = nil
		return false
	}
}

// eval runs JavaScript in the presented page, or in the canvas if none is presented.
func (c *Canvas) eval(ctx context.Context, args struct{ JavaScript string }) (any, error) {
	id, answer := rand.Text(), make(chan value, 1)
	c.mu.Lock()
	there := c.tell(event{"eval", map[string]string{"id": id, "code": args.JavaScript}})
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if !there {
		return nil, errNoPage
	}
	select {
	case v := <-answer:
		if !v.OK {
			return nil, errors.New(v.Value)
		}
		return json.RawMessage(v.Value), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the page did not answer: %w", context.Cause(ctx))
	}
}

// answered accepts a result of eval from the page. It returns false if no eval waits for it.
func (c *Canvas) answered(v value) bool {
	if v.OK && !json.Valid([]byte(v.Value)) {
		v = value{v.ID, false, "the value is not JSON"}
	}
	if len(v.Value) > maxValue {
		v = value{v.ID, false, fmt.Sprintf("the value has more than %d bytes", maxValue)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.waiting[v.ID]
	if ok {
		delete(c.waiting, v.ID)
		answer <- v
	}
	return ok
}

// opened makes a page the receiver of events. An older page is closed.
func (c *Canvas) opened() chan event {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page != nil {
		close(c.page)
	}
	c.page = make(chan event, maxEvents)
	close(c.arrived)
	c.arrived = make(chan struct{})
	c.page <- event{"state", c.shown}
	return c.page
}

// closed records that a page was closed.
func (c *Canvas) closed(page chan event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == page {
		c.page = nil
	}
}

// snapshot draws the presented content. It is not a screenshot: only the browser renders the page.
func (c *Canvas) snapshot(_ context.Context, args struct{ Quality int }) (any, error) {
	c.mu.Lock()
	lines := []string{"farhand canvas (drawn by farhand device, not a screenshot)", "hidden"}
	if c.shown.Visible {
		lines[1] = "visible"
	}
	if c.shown.URL != "" {
		lines = append(lines, "page: "+c.shown.URL)
	}
	for _, object := range c.shown.Content[max(0, len(c.shown.Content)-10):] {
		lines = append(lines, string(object))
	}
	c.mu.Unlock()
	img := image.NewRGBA(image.Rect(0, 0, pictureWidth, pictureHeight))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	write(img, color.Black, lines...)
	if args.Quality == 0 {
		args.Quality = jpeg.DefaultQuality
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: args.Quality}); err != nil {
		return nil, err
	}
	return client.Result{Output: "A drawing of the presented content, not a screenshot.", Parts: []client.Part{{
		Type: client.PartImage, MIMEType: "image/jpeg", Name: "canvas.jpg", Data: b.Bytes(),
	}}}, nil
}
