package browser

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// Bounds of messages from Chromium, because pages control their number and size.
const (
	maxMessage = 2 << 20 // bytes of a message, after its strings were shortened; a screenshot is smaller
	maxString  = 1 << 10 // bytes of a string in a message, but for screenshots
	maxHead    = 64      // bytes that contain a message's method or id
	maxAsked   = 1024    // requests whose answer is awaited; Chromium never answers some

	eventCost  = 8 << 10          // work of an event that is used, in the bytes that are copied for the same work
	skipCost   = 256              // the same of an event that is not used
	workRate   = 8 << 20          // of events per second
	workBurst  = 128 << 20        // of events at once: a large page has 2,000 requests with 3 events each
	floodAfter = 10 * time.Second // of waits, after which a browser is ended

	// maxFramesMade limits the inner frames that pages load and remove during the life of a browser: chromedp forgets
	// none of them, also if a page is loaded anew.
	maxFramesMade = 30_000
)

const codeTooLong = -32_900 // code of the error that replaces a too long answer

// usedEvents are the events that the gateway reads. All others are skipped.
var usedEvents = []string{
	"Browser.downloadWillBegin", "Fetch.authRequired", "Fetch.requestPaused", "Input.dragIntercepted",
	"Inspector.targetCrashed", "Network.loadingFailed", "Network.loadingFinished", "Network.requestWillBeSent",
	"Network.responseReceived", "Page.fileChooserOpened", "Page.frameDetached", "Page.frameNavigated",
	"Page.frameRequestedNavigation", "Page.frameStartedLoading", "Page.frameStoppedLoading",
	"Page.javascriptDialogOpening", "Page.navigatedWithinDocument", "Target.detachedFromTarget",
}

// errFlood is the reason for the end of a browser whose pages keep the gateway busy.
var errFlood = errors.New("a page kept the browser too busy (too many requests, frames or dialogs), and the browser " +
	"was stopped; its pages are lost; open a page to start a new browser")

// wire is the connection to one Chromium process. It implements chromedp.Transport. It bounds the memory of a message
// and the work for events: it waits when events come too fast, and ends the browser if they continue.
type wire struct {
	*chromedp.PipeConn // writes and closes
	in                 *bufio.Reader
	flooded            func() // ends the browser
	closed             chan struct{}
	closing            sync.Once

	// Only Read accesses these.
	credit float64 // work that needs no wait
	paid   time.Time
	behind time.Duration // waits since there was credit for half a burst
	frames int           // loaded in pages, or removed

	mu    sync.Mutex
	asked map[int64]asked
}

// asked is a request without an answer.
type asked struct {
	session target.SessionID
	method  string
}

func newWire(in io.ReadCloser, out io.WriteCloser, flooded func()) *wire {
	return &wire{
		PipeConn: chromedp.NewPipeConn(in, out), in: bufio.NewReaderSize(in, 64<<10), flooded: flooded,
		closed: make(chan struct{}), credit: workBurst, paid: time.Now(), asked: make(map[int64]asked),
	}
}

// Close implements io.Closer.
func (w *wire) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return w.PipeConn.Close()
}

// Write implements chromedp.Transport.
func (w *wire) Write(ctx context.Context, msg *cdproto.Message) error {
	w.mu.Lock()
	w.asked[msg.ID] = asked{session: msg.SessionID, method: string(msg.Method)}
	if len(w.asked) > maxAsked {
		for id := range w.asked {
			if id <= msg.ID-maxAsked/2 {
				delete(w.asked, id)
			}
		}
	}
	w.mu.Unlock()
	return w.PipeConn.Write(ctx, msg)
}

// Read implements chromedp.Transport.
func (w *wire) Read(_ context.Context, msg *cdproto.Message) error {
	for {
		m, err := newMessage(w.in)
		if err != nil {
			return err
		}
		method, id := m.subject()
		switch {
		case id != 0:
			return w.answer(m, id, msg)
		case !slices.Contains(usedEvents, method):
			err = w.skip(m)
		default:
			var used bool
			if used, err = w.event(m, method, msg); used {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func (w *wire) skip(m *message) error {
	if err := m.discard(); err != nil {
		return err
	}
	return w.charge(skipCost + m.size)
}

// event reads an event. It skips one that is too long or is no JSON.
func (w *wire) event(m *message, method string, msg *cdproto.Message) (used bool, err error) {
	m.longest = maxString
	if method == "Page.frameNavigated" {
		m.longest = maxString / 8 // chromedp keeps it
	}
	text, err := m.all()
	if err == nil || errors.Is(err, errTooLong) {
		inner := method == "Page.frameNavigated" && bytes.Contains(text, []byte(`"parentId"`))
		if inner || method == "Page.frameDetached" {
			w.frames++
		}
		if err := w.charge(eventCost + m.size); err != nil {
			return false, err
		}
	}
	switch {
	case errors.Is(err, errTooLong):
		return false, nil
	case err != nil:
		return false, err
	}
	return jsonv2.Unmarshal(text, msg, chromedp.DefaultUnmarshalOptions) == nil, nil
}

// answer reads the answer to a request. If it is too long, the request gets an error instead.
func (w *wire) answer(m *message, id int64, msg *cdproto.Message) error {
	w.mu.Lock()
	of := w.asked[id]
	delete(w.asked, id)
	w.mu.Unlock()
	var err error
	if m.longest = maxString; of.method == accessibility.CommandGetFullAXTree {
		*msg = cdproto.Message{ID: id, SessionID: of.session}
		err = readTree(m, msg)
	} else {
		if of.method == page.CommandCaptureScreenshot {
			m.longest = 0
		}
		var text []byte
		if text, err = m.all(); err == nil {
			return jsonv2.Unmarshal(text, msg, chromedp.DefaultUnmarshalOptions)
		}
	}
	if errors.Is(err, errTooLong) {
		*msg = cdproto.Message{ID: id, SessionID: of.session,
			Error: &cdproto.Error{Code: codeTooLong, Message: err.Error()}}
		return nil
	}
	return err
}

// isTooLong reports whether Chromium's answer was too long to be read.
func isTooLong(err error) bool {
	answer, ok := errors.AsType[*cdproto.Error](err)
	return ok && answer.Code == codeTooLong
}

// charge waits until the work for an event is within the rate. It ends a browser that is behind for too long.
func (w *wire) charge(work int) error {
	now := time.Now()
	w.credit = min(w.credit+now.Sub(w.paid).Seconds()*workRate, workBurst) - float64(work)
	w.paid = now
	if w.credit > workBurst/2 {
		w.behind = 0
	}
	var wait time.Duration
	if w.credit < 0 {
		wait = time.Duration(-w.credit / workRate * float64(time.Second))
	}
	if w.behind += wait; w.behind > floodAfter || w.frames > maxFramesMade {
		w.flooded()
		return errFlood
	}
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.closed:
		return io.EOF
	}
}

var errTooLong = errors.New("the page is too large to be read")

// message is one message of Chromium, up to its zero byte. It shortens long strings while it is read, so that nothing
// of them is kept.
type message struct {
	in      *bufio.Reader
	head    []byte // read before
	ended   bool
	size    int // bytes read
	longest int // bytes of a string; 0: any

	inString, cut, escaped bool
	hex                    int // digits of an escape that follow
	kept                   int // bytes of the string
}

// newMessage waits for a message, and reads its head.
func newMessage(in *bufio.Reader) (*message, error) {
	m := &message{in: in, head: make([]byte, 0, maxHead)}
	for len(m.head) < maxHead {
		b, err := in.ReadByte()
		switch {
		case err != nil && len(m.head) > 0 && err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		m.size++
		if b != 0 {
			m.head = append(m.head, b)
			continue
		}
		if len(bytes.TrimSpace(m.head)) > 0 {
			m.ended = true
			break
		}
		m.head = m.head[:0]
	}
	return m, nil
}

// subject returns the method of an event, or the id of an answer. Chromium writes them first.
func (m *message) subject() (method string, id int64) {
	if rest, ok := bytes.CutPrefix(m.head, []byte(`{"method":"`)); ok {
		name, _, _ := bytes.Cut(rest, []byte(`"`))
		return string(name), 0
	}
	if rest, ok := bytes.CutPrefix(m.head, []byte(`{"id":`)); ok {
		end := bytes.IndexAny(rest, ",}")
		id, _ = strconv.ParseInt(string(rest[:max(end, 0)]), 10, 64)
	}
	return "", id
}

// all returns the text of the message, at most maxMessage bytes. It reads the rest if there are more.
func (m *message) all() ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(m, maxMessage+1))
	if err == nil && len(text) > maxMessage {
		if err = m.discard(); err == nil {
			err = errTooLong
		}
	}
	return text, err
}

// discard reads the rest of the message.
func (m *message) discard() error {
	for !m.ended {
		part, err := m.in.ReadSlice(0)
		m.size += len(part)
		switch {
		case err == nil:
			m.ended = true
		case err != bufio.ErrBufferFull:
			return err
		}
	}
	m.head = nil
	return nil
}

// Read implements io.Reader.
func (m *message) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(m.head) > 0 {
			took, put := m.shorten(p[n:], m.head)
			m.head, n = m.head[took:], n+put
			continue
		}
		if m.ended || n > 0 && m.in.Buffered() == 0 {
			break
		}
		if _, err := m.in.Peek(1); err != nil {
			return n, noEOF(err)
		}
		part, _ := m.in.Peek(m.in.Buffered())
		end := bytes.IndexByte(part, 0)
		if end >= 0 {
			part = part[:end]
		}
		took, put := m.shorten(p[n:], part)
		if n += put; took == end {
			m.ended, took = true, took+1
		}
		m.size += took
		_, _ = m.in.Discard(took)
	}
	if n == 0 && m.ended && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// shorten copies JSON without the ends of long strings, and returns how much it took and put.
func (m *message) shorten(to, from []byte) (took, put int) {
	for took < len(from) && put < len(to) {
		if m.cut && !m.escaped && m.hex == 0 {
			if took += plain(from[took:]); took == len(from) {
				break
			}
		}
		b := from[took]
		took++
		begins := m.inString && !m.escaped && m.hex == 0
		switch {
		case !m.inString:
			m.inString, m.cut, m.kept = b == '"', false, -1 // the quote does not count
		case m.escaped:
			m.escaped = false
			if b == 'u' {
				m.hex = 4
			}
		case m.hex > 0:
			m.hex--
		case b == '"':
			m.inString, m.cut = false, false
		default:
			m.escaped = b == '\\'
		}
		if begins && m.inString && m.longest > 0 && m.kept >= m.longest {
			m.cut = true // before a character, never inside an escape
		}
		if m.cut {
			continue
		}
		to[put] = b
		put++
		if m.inString {
			m.kept++
		}
	}
	return took, put
}

// plain returns the length of the part of a string that has no quote and no escape.
func plain(text []byte) int {
	if i := bytes.IndexByte(text, '"'); i >= 0 {
		text = text[:i]
	}
	if i := bytes.IndexByte(text, '\\'); i >= 0 {
		text = text[:i]
	}
	return len(text)
}
