package hooks_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// A service may say that a gigabyte follows, and send it: no more than the bound of an answer is read.
func TestAnswerOfAGigabyte(t *testing.T) {
	const gigabyte = 1 << 30
	var sent atomic.Int64
	ended := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Length", fmt.Sprint(gigabyte))
		for chunk := strings.Repeat(" ", 1<<16); sent.Load() < gigabyte; {
			n, err := io.WriteString(w, chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	h, log := open(t, s.URL, nil)
	_, err := before(t.Context(), h)
	wantStopped(t, err)
	<-ended
	if n := sent.Load(); n > gigabyte/16 || !strings.Contains(log.String(), "longer than") { // buffers of sockets
		t.Errorf("%d bytes were taken; logged %q", n, log)
	}
}

// Answers of which parts come, and then nothing, or one byte after the other, end with the time of the hook.
func TestAnswersThatDoNotEnd(t *testing.T) {
	for name, part := range map[string]string{"header": "", "body": `{"decision":"contin`} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		h, log := open(t, s.URL, func(c *hooks.Config) { c.Timeout = 50 * time.Millisecond })
		_, err := before(t.Context(), h)
		wantStopped(t, err)
		if !strings.Contains(log.String(), "deadline") {
			t.Errorf("%s: logged %q", name, log)
		}
	}
}

// Answers that nest as deep as their length allows are refused, not followed.
func TestDeepAnswers(t *testing.T) {
	for opening, closing := range map[string]string{"[": "]", `{"a":`: "}"} {
		depth := 30_000 / len(opening)
		opening, closing := strings.Repeat(opening, depth), strings.Repeat(closing, depth)
		deep := opening + "1" + closing
		for _, answer := range []string{
			`{"decision":"modify","args":{"a":` + deep + `}}`,
			`{"decision":"modify","result":{"structured":` + deep + `}}`,
			`{"decision":` + deep + `}`, deep, opening,
		} {
			h, _ := open(t, serve(t, say(answer)).URL, nil)
			_, err := before(t.Context(), h)
			wantStopped(t, err)
			got, err := after(t, h, registry.Result{Success: true, Output: canary})
			wantStopped(t, err)
			if got.Output != "" {
				t.Errorf("%.40s: something is read", answer)
			}
		}
	}
}

// While a thousand calls wait for a hook that hangs, another hook answers, and nothing is left when they have ended.
// What became of the questions is counted.
func TestAThousandCallsWait(t *testing.T) {
	const calls = 1000
	var reached sync.Once
	asked := make(chan struct{})
	stuck := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		reached.Do(func() { close(asked) })
		<-r.Context().Done()
	})
	hangs, _ := open(t, stuck.URL, func(c *hooks.Config) { c.Timeout = time.Second })
	works, _ := open(t, serve(t, say(`{"decision":"continue"}`)).URL, func(c *hooks.Config) { c.Name = "works" })
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			_, err := before(t.Context(), hangs)
			wantStopped(t, err)
		})
	}
	<-asked
	if _, err := before(t.Context(), works); err != nil {
		t.Errorf("the hook that works: %v", err)
	}
	wg.Wait()
	if n := len(stuck.questions()); n > calls/2 {
		t.Errorf("%d questions reached the service", n)
	}
	if s := hangs.Stats(); s.Name != "guard" || s.Questions["failed"] != calls || s.Took < calls*time.Second/2 {
		t.Errorf("%+v", s)
	}
	if s := works.Stats(); s.Questions["continue"] != 1 || s.Questions["failed"] != 0 || s.Took <= 0 {
		t.Errorf("%+v", s)
	}
}

// The questions of one tenant take at most half of a hook's places, and of the bytes that it may hold, and the next one
// is for whoever has fewest: a hook that is slow for one tenant is not for another.
func TestHooksAreShared(t *testing.T) {
	for name, tt := range map[string]struct{ places, size, callers int }{
		"places": {4, 1, 100}, "bytes": {64, 5 << 20, 6},
	} {
		t.Run(name, func(t *testing.T) {
			reached, over := make(chan struct{}, tt.callers), make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.Header.Get("webhook-id"), "slow") {
					reached <- struct{}{}
					<-over
				}
				_, _ = io.WriteString(w, `{"decision":"continue"}`)
			})
			h, _ := open(t, s.URL, func(c *hooks.Config) { c.Concurrent = tt.places })
			ask := func(tenant, user, call string, args registry.JSON) error {
				inv := invocation()
				inv.CallID, inv.Caller.Tenant, inv.Caller.User, inv.Args = call, tenant, user, args
				_, err := h.Before(t.Context(), inv)
				return err
			}
			args := registry.MustJSON(`{"x":"` + strings.Repeat("x", tt.size) + `"}`)
			other := testkit.Alone(t, "requests to one HTTP hook, "+name, func() error {
				return ask("other", "ann", "c1", registry.MustJSON(`{}`))
			})
			var asking sync.WaitGroup
			for i := range cap(reached) {
				asking.Go(func() { _ = ask("acme", fmt.Sprint("user", i), "slow", args) })
			}
			<-reached
			<-reached
			other.Crowded()
			if n := len(reached); n > 0 {
				t.Errorf("%d questions of a tenant are asked at once", 2+n)
			}
			close(over)
			asking.Wait()
		})
	}
}
