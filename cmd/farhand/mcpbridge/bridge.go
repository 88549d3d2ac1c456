// Package mcpbridge carries MCP between a program that speaks it over standard input and output, one message a line,
// and a gateway that speaks it over HTTP at /mcp: desktop clients only start commands. `farhand mcp` is its user.
//
// Messages pass as they are: each line is a POST of its own, its answer a line, and so is each message of an answer
// that is a stream. The bridge does what the two transports do differently:
//
//   - A revision of 2026-07-28 or later has its version, method and name in headers too (bridge.go).
//   - A client cancels by a message. Since 2026-07-28 that is the end of the stream over HTTP (bridge.go).
//   - A client of an older revision hears of changed lists without asking. The bridge asks for it (changes.go).
//   - What HTTP refuses becomes a JSON-RPC error, which says what to do (answer.go).
package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// MaxMessage bounds a message, in bytes. The gateway takes less; its answers are bounded by what devices may say.
	MaxMessage = 16 << 20
	// MaxRequests bounds the requests under way at a time; what comes then is refused.
	MaxRequests = 64
	// maxRequestTime is more than a gateway lets a call take (FARHAND_MAX_CALL_TIMEOUT is 5 min).
	maxRequestTime = time.Hour
	// defaultLinger is, too: a client that has said its last word waits for the answers to its calls.
	defaultLinger = 6 * time.Minute
	// watchEvery is how often the bridge looks whether its client still reads.
	watchEvery = time.Second
)

// Config configures a bridge. URL is required.
type Config struct {
	URL    string       // of the gateway's endpoint, such as https://gateway.example.com/mcp
	Token  string       // bearer token; empty: none
	Client *http.Client // default: http.DefaultClient
	Log    io.Writer    // is told of what the client cannot be told; default: nobody

	// Linger is how long answers are waited for after the input has ended; default 6 min.
	Linger time.Duration
}

// bridge is a run of Run.
type bridge struct {
	Config
	out     *lineWriter
	running sync.WaitGroup // requests, and those who wait for changes
	places  chan struct{}  // one for each request under way

	mu         sync.Mutex
	inFlight   map[string]context.CancelCauseFunc // by request id; nil: cancelled
	negotiated string                             // revision that initialize agreed on
	session    string                             // name that initialize gave this client
	following  bool                               // changes are asked for on behalf of a client that does not ask
}

// errCancelled ends a request whose client has cancelled it.
var errCancelled = errors.New("cancelled by the client")

// Run carries messages until in ends, and then waits for the answers to what it has read, for Config.Linger. The end of
// ctx ends all of it at once, and so does a client that no longer reads out, if that is a pipe or a socket of Linux; a
// read of in and a write to out that are under way then are left behind, because nothing ends those of a terminal. The error is that of in,
// of out, or nil.
func Run(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	client := *cfg.Client // follows nobody: the token is for the URL it was given with
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.Client = &client
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	if cfg.Linger <= 0 {
		cfg.Linger = defaultLinger
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bridge{
		Config: cfg, out: &lineWriter{w: out, failed: cancel},
		places: make(chan struct{}, MaxRequests), inFlight: make(map[string]context.CancelCauseFunc),
	}
	var watching sync.WaitGroup
	watching.Go(func() { watch(ctx, out, cancel) })
	listening, stopListening := context.WithCancel(ctx)
	err := b.read(ctx, listening, in)
	stopListening()
	last := time.AfterFunc(cfg.Linger, cancel)
	b.wait(ctx)
	last.Stop()
	cancel()
	watching.Wait()
	return errors.Join(err, b.out.failure())
}

// wait waits for all requests. After the end of ctx it leaves those behind whose answers nobody reads: nothing ends a
// write to a terminal.
func (b *bridge) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		b.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(stuckAfter):
	}
}

// watch calls gone when nobody reads what is written to out any more, and returns then, or when ctx ends.
func watch(ctx context.Context, out io.Writer, gone func()) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if f, ok := out.(*os.File); ok && hungUp(f) {
				gone()
				return
			}
		}
	}
}

// read starts a request for each line of in, until in or ctx ends. listening is the context of those that end with in.
func (b *bridge) read(ctx, listening context.Context, in io.Reader) error {
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { // ends with in, or when ctx has ended and in says something once more
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, MaxMessage)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(bytes.TrimSpace(scanner.Bytes())):
			case <-ctx.Done():
				return
			}
		}
		ended <- scanner.Err()
	}()
	for {
		select {
		case line := <-lines:
			if len(line) > 0 {
				b.take(ctx, listening, line)
			}
		case err := <-ended:
			if errors.Is(err, bufio.ErrTooLong) {
				return fmt.Errorf("a message is longer than %d MiB", MaxMessage>>20)
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// take begins what one line asks for. It does not wait: the next line may cancel what holds the last place.
func (b *bridge) take(ctx, listening context.Context, line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil && line[0] != '[' {
		b.out.write(failure(nil, codeParse, "This line is no JSON-RPC message: "+err.Error(), nil))
		return
	}
	run := func(free func()) { b.request(ctx, m, line, free) }
	switch m.Method {
	case methodListen:
		run = func(func()) { b.listen(listening, m, line, b.out.write) }
	case methodInitialized:
		b.followChanges(listening)
	case methodCancelled:
		// From 2026-07-28 on the end of the answer's stream says it all. Before, the gateway hears of it as the client
		// says it. It needs no place of its own: what it cancels has one.
		if b.cancel(m.Params.RequestID) && m.version() == "" {
			b.running.Go(func() { run(func() {}) })
		}
		return
	}
	select {
	case b.places <- struct{}{}:
		b.running.Go(func() {
			free := sync.OnceFunc(func() { <-b.places })
			defer free()
			run(free)
		})
	default:
		err := fmt.Errorf("%d requests are under way: wait for one to end, or cancel one", MaxRequests)
		b.failWith(m, err, b.out.write)
	}
}

// request makes one request and writes its answer, unless it is cancelled. It calls free when the answer is about to be
// written: a client that has its answer may make the next request.
func (b *bridge) request(ctx context.Context, m message, line []byte, free func()) {
	ctx, cancel := context.WithTimeout(ctx, maxRequestTime)
	defer cancel()
	ctx, done, ok := b.begin(ctx, m.ID)
	if !ok {
		b.out.writeLast(failure(m.ID, codeInvalidRequest, "A request with this id is under way.", nil), free)
		return
	}
	defer done()
	last := func(text []byte) { b.out.writeLast(text, free) }
	err := b.post(ctx, m, line, func(text []byte) {
		switch {
		case !answers(text, m.ID):
			b.out.write(text)
		case m.Method == methodInitialize:
			last(b.noteVersion(text))
		default:
			last(text)
		}
	})
	if err != nil && context.Cause(ctx) != errCancelled {
		b.failWith(m, err, last)
	}
}

// begin keeps a request so that it can be cancelled by its id, until done is called. Two cannot have one id.
func (b *bridge) begin(ctx context.Context, id json.RawMessage) (held context.Context, done func(), ok bool) {
	if id == nil {
		return ctx, func() {}, true
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.inFlight[string(id)]; taken {
		cancel(nil)
		return nil, nil, false
	}
	b.inFlight[string(id)] = cancel
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.inFlight, string(id))
		cancel(nil)
	}, true
}

// cancel ends the request with an id, and reports whether it was under way. Its place is taken until it has ended.
func (b *bridge) cancel(id json.RawMessage) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel := b.inFlight[string(id)]
	if cancel == nil {
		return false
	}
	cancel(errCancelled)
	b.inFlight[string(id)] = nil
	return true
}

// stuckAfter is how long a write to out may take after the end.
const stuckAfter = time.Second

// lineWriter writes messages, each on a line. It is safe for concurrent use.
type lineWriter struct {
	mu     sync.Mutex
	w      io.Writer
	failed func() // is called when writing fails: nobody reads any more
	err    error
}

// failure returns why writing failed, nil if it did not, or is not over.
func (w *lineWriter) failure() error {
	if !w.mu.TryLock() {
		return nil
	}
	defer w.mu.Unlock()
	return w.err
}

func (w *lineWriter) write(text []byte) { w.writeLast(text, func() {}) }

// writeLast writes the last message of a request. It calls free, which gives the request's place back, right before the
// write: while the client reads nothing, requests keep their places.
func (w *lineWriter) writeLast(text []byte, free func()) {
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		return // not JSON, so not a message either; the gateway sends none such
	}
	line.WriteByte('\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	free()
	if w.err != nil {
		return
	}
	if _, w.err = w.w.Write(line.Bytes()); w.err != nil {
		w.failed()
	}
}

// Names of the protocol, of its revision 2026-07-28 and of the older ones.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"

	methodInitialize   = "initialize"
	methodInitialized  = "notifications/initialized"
	methodCancelled    = "notifications/cancelled"
	methodListen       = "subscriptions/listen"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

// message is what the bridge reads of a message.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"` // none: a notification
	Method string          `json:"method"`       // none: an answer, to a request that this gateway never makes
	Params struct {
		Meta      map[string]json.RawMessage `json:"_meta"`
		Name      string                     `json:"name"`
		URI       string                     `json:"uri"`
		TaskID    string                     `json:"taskId"`
		RequestID json.RawMessage            `json:"requestId"`
	} `json:"params"`
}

// version returns the revision that a message names itself: since 2026-07-28 all do. Older ones name none.
func (m message) version() string {
	var version string
	_ = json.Unmarshal(m.Params.Meta[metaVersion], &version)
	return version
}

// headerSession carries the name that initialize gave a client of a revision before 2026-07-28.
const headerSession = "Mcp-Session-Id"

// header adds the headers of a message. What initialize agreed on is empty if there was none.
func (m message) header(h http.Header, negotiated, session string) {
	version := m.version()
	if version == "" {
		if negotiated != "" && m.Method != methodInitialize {
			h.Set("MCP-Protocol-Version", negotiated)
		}
		if session != "" && m.Method != methodInitialize {
			h.Set(headerSession, session)
		}
		return
	}
	h.Set("MCP-Protocol-Version", version)
	h.Set("Mcp-Method", headerValue(m.Method))
	switch {
	case m.Params.Name != "":
		h.Set("Mcp-Name", headerValue(m.Params.Name))
	case m.Params.URI != "":
		h.Set("Mcp-Name", headerValue(m.Params.URI))
	case strings.HasPrefix(m.Method, "tasks/") && m.Params.TaskID != "":
		h.Set("Mcp-Name", headerValue(m.Params.TaskID))
	}
}

// headerValue writes a text as the value of a header, as the transport of MCP has it: what would not arrive as it is,
// and what looks as if it was encoded, is encoded.
func headerValue(text string) string {
	const prefix, suffix = "=?base64?", "?="
	plain := text == strings.Trim(text, " \t") && !(strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix))
	for _, c := range text {
		plain = plain && c >= ' ' && c <= '~'
	}
	if plain {
		return text
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(text)) + suffix
}
