package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/farhand/farhand/internal/share"
)

// reader returns a connection with a pool of that size.
func reader(size int64, p *program) *connection {
	return &connection{decoding: share.New(share.Bounds{Pod: size}), paces: newPaces(), first: new(attempt), program: p,
		asked: make(map[jsonrpc.ID]*attempt)}
}

// A message counts while it is read, before it is complete, and not any more when its reading has ended.
func TestMessagesCountWhileTheyAreRead(t *testing.T) {
	for name, events := range map[string]bool{"line": false, "event": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := reader(64<<20, nil)
				ctx, a := newAttempt(t.Context(), "t")
				body, in := io.Pipe()
				g := newGate(&paced{ReadCloser: body, ctx: ctx, pace: c.paces.forTenant("t"), left: -1}, c, events)
				done := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, g)
					done <- err
				}()
				begin := `{"jsonrpc":"2.0","id":1,"result":{"a":"`
				if events {
					begin = "data: " + begin
				}
				write := func(text string) {
					if _, err := io.WriteString(in, text); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				write(begin + strings.Repeat("x", smallAnswer/2))
				if n := c.decoding.Held("t"); n != 0 {
					t.Errorf("a short message holds %d bytes", n)
				}
				write(strings.Repeat("x", 3<<20))
				if n := c.decoding.Held("t"); n < 3<<20 || n > 4<<20 {
					t.Errorf("3 MiB of a message hold %d bytes", n)
				}
				write(`"}}` + "\n\n")
				if n := c.decoding.Held("t"); n < 9<<20 || n > 10<<20 {
					t.Errorf("an answer of 3 MiB holds %d bytes", n)
				}
				write(begin + strings.Repeat("x", 1<<20))
				if n := c.decoding.Held("t"); n < 10<<20 || n > 11<<20 {
					t.Errorf("an answer, and 1 MiB of another, hold %d bytes", n)
				}
				_ = g.Close()
				<-done
				c.finishAttempt(a)
				if n := c.decoding.Stats().Held; n != 0 {
					t.Errorf("%d bytes are still held", n)
				}
			})
		})
	}
}

// A message for which there is no memory ends its stream. A program loses only that message.
func TestNoMemoryToRead(t *testing.T) {
	for _, p := range []*program{nil, new(program)} {
		synctest.Test(t, func(t *testing.T) {
			c := reader(8<<20, p)
			full, err := c.decoding.Try(share.Owner{Tenant: "other"}, 8<<20)
			if err != nil {
				t.Fatal(err)
			}
			ctx, a := newAttempt(t.Context(), "t")
			if p != nil {
				ctx = t.Context()
			}
			const next = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n"
			said := `{"jsonrpc":"2.0","id":1,"result":{"a":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n" + next
			in := io.NopCloser(strings.NewReader(said))
			body := &paced{ReadCloser: in, ctx: ctx, pace: c.paces.forTenant("t"), left: -1}
			text, err := io.ReadAll(newGate(body, c, false))
			if p == nil && !errors.Is(err, errCrowded) || p != nil && (err != nil || string(text) != next) {
				t.Errorf("program %v: %.100s, %v", p != nil, text, err)
			}
			full.Release()
			c.finishAttempt(a)
			if n := c.decoding.Stats().Held; n != 0 {
				t.Errorf("%d bytes are still held", n)
			}
		})
	}
}

// The body of an HTTP response counts while it arrives, and not any more when its request has ended.
func TestBodiesCountWhileTheyArrive(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bytes.Repeat([]byte(" "), 4<<20))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	c := reader(64<<20, nil)
	c.server = &Server{URL: s.URL, Private: true, MaxCalls: 1, Connect: time.Minute}
	c.ctx, c.end = context.WithCancelCause(t.Context())
	defer c.end(nil)
	c.inUse, c.leave = context.WithCancelCause(c.ctx)
	w := newWeb(c)
	defer w.close()
	calling, cancel := context.WithCancel(t.Context())
	ctx, a := newAttempt(calling, "t")
	const call = `{"jsonrpc":"2.0","id":1,"method":"x"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(call))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.RoundTrip(req)
		done <- err
	}()
	tick, end := time.NewTicker(5*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for c.decoding.Held("t") < 4<<20 {
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatal(err)
		case <-end:
			t.Fatalf("4 MiB of a body hold %d bytes", c.decoding.Held("t"))
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("the request has succeeded")
	}
	c.finishAttempt(a)
	if n := c.decoding.Stats().Held; n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}

// A second answer to a request is read by nobody. It neither passes, nor does it release the memory of the first.
func TestSecondAnswers(t *testing.T) {
	for _, p := range []*program{nil, new(program)} {
		c := reader(64<<20, p)
		ctx, a := newAttempt(t.Context(), "t")
		from := &paced{ctx: ctx, pace: c.paces.forTenant("t"), call: true}
		id, err := jsonrpc.MakeID(float64(1))
		if err != nil {
			t.Fatal(err)
		}
		if p != nil {
			from.ctx = t.Context()
			c.asks(&jsonrpc.Request{ID: id, Method: "tools/call"}, a)
		} else {
			c.posts(a, id)
		}
		if pass, err := c.receive(longAnswer(1), from); !pass || err != nil {
			t.Fatalf("%v, %v", pass, err)
		}
		held := c.decoding.Held("t")
		for _, second := range [][]byte{
			longAnswer(1), []byte(`{"jsonrpc":"2.0","id":1,"result":{"a":"` + strings.Repeat("x", smallAnswer) + `"}}`),
			[]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`),
		} {
			if pass, err := c.receive(second, from); pass || err != nil || c.decoding.Held("t") != held {
				t.Errorf("a second answer passes: %v, %v; %d bytes held, not %d", pass, err, c.decoding.Held("t"), held)
			}
		}
		if p != nil { // the next page of a list
			next, err := jsonrpc.MakeID(float64(2))
			if err != nil {
				t.Fatal(err)
			}
			if c.asks(&jsonrpc.Request{ID: next, Method: "tools/list"}, a); len(c.asked) != 1 {
				t.Errorf("%d requests of one attempt are remembered", len(c.asked))
			}
		}
		c.finishAttempt(a)
		c.finishAttempt(a)
		if n := c.decoding.Stats().Held; n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	}
}
