// Package mcpbridge carries MCP between a program that speaks it over standard input and output, one message a line,
// and a gateway that speaks it over HTTP at /mcp. It exists because desktop clients only start commands. `farhand mcp`
// uses it.
//
// Messages pass unchanged: each line is a POST of its own, its answer a line, and so is each message of an answer that
// is a stream. The bridge translates what the two transports do differently:
//
//   - A revision of 2026-07-28 or later has its version, method and name in headers also (bridge.go).
//   - A client cancels by a message. Since 2026-07-28, ending the stream cancels over HTTP (bridge.go).
//   - A client of an older revision receives changes of lists without subscribing. The bridge subscribes (answer.go).
//   - HTTP errors become JSON-RPC errors that say what to do (answer.go).
package mcpbridge

import (
	"bufio"
	"bytes"
	"cmp"
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

	"github.com/farhand/farhand/internal/pause"
)

const (
	// MaxMessage bounds a message, in bytes. The gateway accepts less; the limits of devices bound its answers.
	MaxMessage = 16 << 20
	// MaxRequests bounds the requests in flight; further ones are rejected.
	MaxRequests = 64
	// maxRequestTime is more than a gateway lets a call take (FARHAND_MAX_CALL_TIMEOUT is 5 min).
	maxRequestTime = time.Hour
	// defaultLinger also exceeds it: a client that has closed its input still waits for the answers to its calls.
	defaultLinger = 6 * time.Minute
	// watchEvery is how often the bridge checks whether its client still reads.
	watchEvery = time.Second
)

// Config configures a bridge. URL is required.
type Config struct {
	URL    string        // of the gateway's endpoint, such as https://gateway.example.com/mcp
	Token  string        // bearer token; empty: none
	Client *http.Client  // default: http.DefaultClient
	Log    io.Writer     // of errors that have no answer; default: discarded
	Linger time.Duration // limit for answers after the input has ended; default 6 min
}

type bridge struct {
	Config
	out     *lineWriter
	running sync.WaitGroup // requests, and goroutines that wait for changes

	mu         sync.Mutex
	inFlight   map[string]context.CancelCauseFunc // by request id; nil: cancelled
	unnamed    int                                // notifications that were sent
	negotiated string                             // revision that initialize agreed on
	session    string                             // name that initialize gave this client
	following  bool                               // the bridge subscribes to changes for a client that cannot
}

// errCancelled is the cause of a request that the client cancelled.
var errCancelled = errors.New("cancelled by the client")

// errTaken is the error of a request whose id is in use.
var errTaken = refusal{Detail: "A request with this id is in flight."}

// Run carries messages until in ends, then waits up to Config.Linger for the answers to what it has read. It stops
// immediately if ctx ends, or if the client no longer reads out, which it notices for pipes and sockets of Linux. A
// read of in and a write to out that are then in flight are abandoned, because those of a terminal cannot be
// interrupted. Run returns the error of in or of out, or nil.
func Run(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	client := *cmp.Or(cfg.Client, http.DefaultClient) // follows no redirects: the token is only for its URL
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.Client = &client
	cfg.Log = cmp.Or(cfg.Log, io.Discard)
	cfg.Linger = cmp.Or(cfg.Linger, defaultLinger)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bridge{
		Config: cfg, out: &lineWriter{w: out, failed: cancel}, inFlight: make(map[string]context.CancelCauseFunc),
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

// wait waits for all requests. If ctx ends it waits for stuckAfter, then abandons requests that still write to a client
// that does not read: a write to a terminal cannot be interrupted.
func (b *bridge) wait(ctx context.Context) {
	if pause.Wait(ctx, &b.running) == nil {
		return
	}
	stuck, cancel := context.WithTimeout(context.WithoutCancel(ctx), stuckAfter)
	defer cancel()
	_ = pause.Wait(stuck, &b.running)
}

// watch calls gone once out has no reader any more. It returns when ctx ends.
func watch(ctx context.Context, out io.Writer, gone func()) {
	f, ok := out.(*os.File)
	if !ok {
		return
	}
	for pause.For(ctx, watchEvery) == nil {
		if hungUp(f) {
			gone()
		}
	}
}

// read starts a request for each line of in, until in or ctx ends. Streams of notifications run with listening, which
// ends when in ends.
func (b *bridge) read(ctx, listening context.Context, in io.Reader) error {
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { // ends with in, or with the next line of in after ctx has ended
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

// take starts the request of one line. It does not wait: the next line may cancel the request that holds the last
// place.
func (b *bridge) take(ctx, listening context.Context, line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil && line[0] != '[' {
		b.out.write(failure(nil, codeParse, "This line is not a JSON-RPC message: "+err.Error(), nil))
		return
	}
	run := b.request
	switch m.Method {
	case methodListen:
		ctx = listening
		run = func(ctx context.Context, m message, line []byte, _ func()) { b.listen(ctx, m, line, b.out.write) }
	case methodInitialized:
		b.followChanges(listening)
	case methodCancelled:
		// From 2026-07-28 on, closing the stream cancels the request. For older revisions the gateway receives the
		// client's message. That message needs no place of its own: the request it cancels has one.
		if b.cancel(m.Params.RequestID) && m.version() == "" {
			b.running.Go(func() { b.request(ctx, m, line, func() {}) })
		}
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	free, err := b.begin(m.ID, cancel)
	if err != nil {
		cancel(nil)
		b.failWith(m, err, b.out.write)
		return
	}
	b.running.Go(func() {
		defer cancel(nil)
		defer free()
		run(ctx, m, line, free)
	})
}

// request makes one request and writes its answer, unless it is cancelled. It calls free right before it writes the
// answer, because a client that has its answer may make the next request.
func (b *bridge) request(ctx context.Context, m message, line []byte, free func()) {
	ctx, cancel := context.WithTimeout(ctx, maxRequestTime)
	defer cancel()
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

// begin gives a request its place, until free is called. Meanwhile its id can cancel it.
func (b *bridge) begin(id json.RawMessage, cancel context.CancelCauseFunc) (free func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := string(id)
	if id == nil {
		b.unnamed++
		key = fmt.Sprint("notification ", b.unnamed) // not a valid id
	}
	if _, taken := b.inFlight[key]; taken {
		return nil, errTaken
	}
	if len(b.inFlight) == MaxRequests {
		return nil, fmt.Errorf("%d requests are in flight, the maximum: wait for one or cancel one", MaxRequests)
	}
	b.inFlight[key] = cancel
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.inFlight, key)
	}), nil
}

// cancel ends the request with this id, and reports whether it was in flight. The request keeps its place until it has
// ended.
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
	failed func() // called if writing fails because out has no reader
	err    error
}

// failure returns why writing failed. It returns nil if writing did not fail, or is still in progress.
func (w *lineWriter) failure() error {
	if !w.mu.TryLock() {
		return nil
	}
	defer w.mu.Unlock()
	return w.err
}

func (w *lineWriter) write(text []byte) { w.writeLast(text, func() {}) }

// writeLast writes the last message of a request. It calls free, which releases the request's place, right before the
// write: while the client does not read, requests keep their places.
func (w *lineWriter) writeLast(text []byte, free func()) {
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		return // not JSON, so not a message; the gateway sends none
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

// Names of the protocol: revision 2026-07-28 and older.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"

	methodInitialize   = "initialize"
	methodInitialized  = "notifications/initialized"
	methodCancelled    = "notifications/cancelled"
	methodListen       = "subscriptions/listen"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

type message struct {
	ID     json.RawMessage `json:"id,omitempty"` // absent: a notification
	Method string          `json:"method"`       // absent: an answer; this gateway makes no requests
	Params struct {
		Meta      map[string]json.RawMessage `json:"_meta"`
		Name      string                     `json:"name"`
		URI       string                     `json:"uri"`
		TaskID    string                     `json:"taskId"`
		RequestID json.RawMessage            `json:"requestId"`
	} `json:"params"`
}

// version returns the revision that a message names. Messages since 2026-07-28 name it; older ones do not.
func (m message) version() string {
	var version string
	_ = json.Unmarshal(m.Params.Meta[metaVersion], &version)
	return version
}

// headerSession carries the session name that initialize gave a client of a revision before 2026-07-28.
const headerSession = "Mcp-Session-Id"

func (b *bridge) setHeaders(h http.Header, m message) {
	b.mu.Lock()
	negotiated, session := b.negotiated, b.session
	b.mu.Unlock()
	version := m.version()
	name := cmp.Or(m.Params.Name, m.Params.URI)
	if strings.HasPrefix(m.Method, "tasks/") {
		name = cmp.Or(name, m.Params.TaskID)
	}
	set := func(key, value string) {
		if value != "" {
			h.Set(key, value)
		}
	}
	switch {
	case version != "":
		set("MCP-Protocol-Version", version)
		set("Mcp-Method", headerValue(m.Method))
		set("Mcp-Name", headerValue(name))
	case m.Method != methodInitialize:
		set("MCP-Protocol-Version", negotiated)
		set(headerSession, session)
	}
}

// headerValue encodes a text as a header value, as MCP's HTTP transport specifies: text that a header cannot carry, and
// text that looks encoded, is encoded.
func headerValue(text string) string {
	const prefix, suffix = "=?base64?", "?="
	encoded := strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix)
	special := strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
	if !encoded && !special && text == strings.Trim(text, " ") {
		return text
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(text)) + suffix
}
