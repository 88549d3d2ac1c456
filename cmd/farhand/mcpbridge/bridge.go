package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
// read of in that is under way then is left behind, because nothing ends a read of a terminal. The error is that of in,
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
	b.running.Wait()
	last.Stop()
	cancel()
	watching.Wait()
	return errors.Join(err, b.out.err)
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

// lineWriter writes messages, each on a line. It is safe for concurrent use.
type lineWriter struct {
	mu     sync.Mutex
	w      io.Writer
	failed func() // is called when writing fails: nobody reads any more
	err    error
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
