package mcp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/api/internal/ssewriter"
)

// recorded is an Out whose events can be read.
type recorded struct {
	nothing
	w    *httptest.ResponseRecorder
	gone bool
}

func (r *recorded) Open() (*ssewriter.Stream, error) {
	if r.gone {
		return nil, errors.New("the client is gone")
	}
	return ssewriter.New(r.w), nil
}

func newAnswer(ctx context.Context, out Out) (context.Context, *answer) {
	r := &request{message: message{id: []byte("1"), method: methodCallTool}, modern: true, Exchange: &Exchange{
		Out: out, Header: http.Header{"Accept": {"application/json, text/event-stream"}},
	}}
	return r.begin(ctx)
}

// A call that takes long shows signs of life, and one that does not is answered with plain JSON.
func TestLongCallsShowSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{info: []byte("{}")}
		out := &recorded{w: httptest.NewRecorder()}
		_, quick := newAnswer(t.Context(), out)
		time.Sleep(silence - time.Millisecond)
		if err := quick.finish(s, result{}, nil); err != nil || out.status != http.StatusOK || out.w.Body.Len() > 0 {
			t.Errorf("a quick call: %v %d %s", err, out.status, out.w.Body)
		}
		out.status = 0
		_, long := newAnswer(t.Context(), out)
		time.Sleep(silence + 2*ssewriter.Heartbeat + time.Second)
		synctest.Wait()
		if got := out.w.Body.String(); got != ":\n\n:\n\n" {
			t.Errorf("signs of life: %q", got)
		}
		if err := long.finish(s, result{}, nil); err != nil || out.status != 0 ||
			!strings.HasSuffix(out.w.Body.String(), "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{"+
				"\"resultType\":\"complete\",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":{}}}}\n\n") {
			t.Errorf("the end: %v %q", err, out.w.Body)
		}
		long.notify([]byte("{}"))
		time.Sleep(time.Hour)
		if got := out.w.Body.String(); !strings.HasSuffix(got, "}}}\n\n") {
			t.Errorf("written after the end: %q", got)
		}
	})
}

// A client that turns out to be gone ends its request.
func TestAClientThatIsGoneEndsItsRequest(t *testing.T) {
	out := &recorded{w: httptest.NewRecorder(), gone: true}
	ctx, a := newAnswer(t.Context(), out)
	a.notify([]byte("{}"))
	if ctx.Err() == nil {
		t.Error("the request goes on")
	}
	if err := a.finish(&Server{}, result{}, nil); err != nil || out.status != 0 {
		t.Errorf("written to nobody: %v %d", err, out.status)
	}
}

// A sign of life that is being written while the answer ends does not set the timer again.
func TestFinishStopsTheTimer(t *testing.T) {
	a := &answer{stop: func() {}, timer: time.NewTimer(time.Hour), over: true}
	a.mu.Lock() // a sign of life is being written
	ended := make(chan error, 1)
	go func() { ended <- a.finish(nil, result{}, nil) }()
	for range 10_000 {
		runtime.Gosched()
	}
	a.timer.Reset(time.Hour)
	a.mu.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if a.timer.Stop() {
		t.Error("the timer of an answer that has ended is set")
	}
}
