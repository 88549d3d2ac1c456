package hooks_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/registry"
)

// canary is in results and in answers, and must not be in the log.
const canary = "hunter2-canary"

// broken are answers that cannot be used, in the one phase, the other, or both.
var broken = map[string]struct{ before, after bool }{
	``:                          {true, true},
	`null`:                      {true, true},
	`{}`:                        {true, true},
	`[]`:                        {true, true},
	`"continue"`:                {true, true},
	`{"decision":"continue"} x`: {true, true},
	`{"decision":"continue"}{"decision":"continue"}`:             {true, true},
	`{"decision":"continue"`:                                     {true, true},
	`{"decision":"Continue"}`:                                    {true, true},
	`{"Decision":"continue"}`:                                    {true, true},
	`{"decision":"cancel","DECISION":"continue"}`:                {true, true},
	`{"decision":"cancel","decision":"continue"}`:                {true, true},
	`{"decision":true}`:                                          {true, true},
	`{"decision":null}`:                                          {true, true},
	`{"decision":"continue","` + canary + `":1}`:                 {true, true},
	`{"decision":"continue","reason":"x"}`:                       {true, true},
	`{"decision":"cancel","reason":1}`:                           {true, true},
	`{"decision":"modify"}`:                                      {true, true},
	`{"decision":"continue","args":{}}`:                          {true, true},
	`{"decision":"cancel","args":{}}`:                            {true, true},
	`{"decision":"continue","result":{}}`:                        {true, true},
	`{"decision":"modify","args":{}}`:                            {false, true},
	`{"decision":"modify","args":[]}`:                            {true, true},
	`{"decision":"modify","args":"{}"}`:                          {true, true},
	`{"decision":"modify","args":null}`:                          {true, true},
	`{"decision":"modify","args":{"a":1,"a":2}}`:                 {true, true},
	`{"decision":"modify","result":{}}`:                          {true, false},
	`{"decision":"modify","result":"` + canary + `"}`:            {true, true},
	`{"decision":"modify","result":{"output":1}}`:                {true, true},
	`{"decision":"modify","result":{"output":null}}`:             {true, true},
	`{"decision":"modify","result":{"structured":null}}`:         {true, true},
	`{"decision":"modify","result":{"structured":"a text"}}`:     {true, true},
	`{"decision":"modify","result":{"success":"yes"}}`:           {true, true},
	`{"decision":"modify","result":{"error":{}}}`:                {true, true},
	`{"decision":"modify","result":{"other":1}}`:                 {true, true},
	`{"decision":"modify","result":{"parts":1}}`:                 {true, true},
	`{"decision":"modify","result":{"parts":[0]}}`:               {true, true},
	`{"decision":"modify","result":{"parts":[{}]}}`:              {true, true},
	`{"decision":"modify","result":{"parts":[{"index":-1}]}}`:    {true, true},
	`{"decision":"modify","result":{"parts":[{"index":"0"}]}}`:   {true, true},
	`{"decision":"modify","result":{"parts":[{"data":"AA=="}]}}`: {true, true},
	"{\"decision\":\"modify\",\"result\":{\"output\":\"\xff\"}}": {true, true},
	`<html>` + canary + `</html>`:                                {true, true},
}

// An answer that is not understood whole is none: a call stops and a result is withheld, or they pass if the operator
// says so. The log says that, and has nothing of the answer or the result.
func TestUnusableAnswers(t *testing.T) {
	for text, in := range broken {
		s := serve(t, say(text))
		closed, log := open(t, s.URL, nil)
		fails, _ := open(t, s.URL, func(c *hooks.Config) { c.FailOpen = true })
		res := registry.Result{Success: true, Output: canary}
		if in.before {
			_, err := before(t.Context(), closed)
			wantStopped(t, err)
			if d, err := before(t.Context(), fails); err != nil || !reflect.DeepEqual(d, agent.Pass()) {
				t.Errorf("%s: open, before: %+v, %v", text, d, err)
			}
		}
		if in.after {
			got, err := after(t, closed, res)
			wantStopped(t, err)
			if got.Output != "" {
				t.Errorf("%s: read %+v", text, got)
			}
			if got, err := after(t, fails, res); err != nil || !reflect.DeepEqual(got, res) {
				t.Errorf("%s: open, after: %+v, %v", text, got, err)
			}
		}
		if logged := log.String(); !strings.Contains(logged, "hook=guard") || strings.Contains(logged, canary) {
			t.Errorf("%s: logged %q", text, logged)
		}
	}
}

// The log says where in the answer the problem is, also in the parts, which are read apart.
func TestUnusablePartsAreNamed(t *testing.T) {
	for parts, want := range map[string]string{
		`[{"index":"0"}]`:       "result.parts: \\\"/0/index\\\" has the wrong type",
		`[{"index":0,"x":"y"}]`: "result.parts: must be one JSON object without",
		`[{"index":-1}]`:        "result.parts: each must have",
	} {
		closed, log := open(t, serve(t, say(`{"decision":"modify","result":{"parts":`+parts+`}}`)).URL, nil)
		_, err := after(t, closed, registry.Result{Success: true, Output: canary})
		wantStopped(t, err)
		if logged := log.String(); !strings.Contains(logged, want) {
			t.Errorf("%s: logged %s", parts, logged)
		}
	}
}

// Services that are away, slow, endless or failing.
func TestBrokenServices(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	stuck := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		url     string
		timeout time.Duration
		log     string
	}{
		"refused": {"http://" + refused.Addr().String(), hooks.MaxTimeout, "refused"},
		"stuck":   {serve(t, stuck).URL, 50 * time.Millisecond, "deadline"},
		"status": {serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"decision":"continue"}`)
		}).URL, hooks.MaxTimeout, "status 500"},
		"nothing": {serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}).URL, hooks.MaxTimeout, "status 204"},
		"endless": {serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for _, err := fmt.Fprint(w, `{"decision":"continue"`); err == nil; {
				_, err = fmt.Fprint(w, strings.Repeat(" ", 1<<16))
			}
		}).URL, hooks.MaxTimeout, "longer than"},
		"endless header": {serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}).URL, hooks.MaxTimeout, "header"},
		"compressed": {serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				t.Error("the hook would take a compressed answer")
			}
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "\x1f\x8b\x08\x00")
		}).URL, hooks.MaxTimeout, "JSON"},
	} {
		h, log := open(t, c.url, func(cfg *hooks.Config) { cfg.Timeout = c.timeout })
		_, err := before(t.Context(), h)
		wantStopped(t, err)
		if !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: logged %q", name, log)
		}
	}
}

// A service that never answers costs each call it guards no more than the hook's timeout, however many there are, and
// no goroutine or connection is left of them.
func TestDeadServiceCostsItsTimeout(t *testing.T) {
	const calls, timeout = 400, 200 * time.Millisecond
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h, log := open(t, s.URL, func(c *hooks.Config) { c.Timeout, c.Concurrent = timeout, 8 })
	var wg sync.WaitGroup
	start := time.Now()
	for range calls {
		wg.Go(func() {
			_, err := before(t.Context(), h)
			wantStopped(t, err)
		})
	}
	wg.Wait()
	t.Logf("%d calls took %v", calls, time.Since(start))
	// A call that waits for a place does not ask once its time is up. One after another, all would have asked.
	if n := len(s.questions()); n > calls/4 { // those that came later get the turns of those whose time was up
		t.Errorf("%d questions reached the service", n)
	}
	if n := strings.Count(log.String(), "\n"); n > 3 {
		t.Errorf("%d lines in the log", n)
	}
}

// A call whose time is up, or whose caller has gone, waits for no hook. That is no fault of the service.
func TestHooksEndWithTheirCalls(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h, log := open(t, s.URL, nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := before(ctx, h)
	wantStopped(t, err)
	if log.String() != "" {
		t.Errorf("logged %q", log)
	}
	inv := invocation()
	inv.Deadline = time.Now().Add(50 * time.Millisecond)
	start := time.Now()
	_, err = h.Before(t.Context(), inv)
	wantStopped(t, err)
	if took := time.Since(start); took >= hooks.MaxTimeout {
		t.Errorf("took %v", took)
	}
}

// A result that comes in the last moment is looked at all the same.
func TestLastMomentResults(t *testing.T) {
	s := serve(t, say(`{"decision":"modify","result":{"output":"***"}}`))
	h, _ := open(t, s.URL, nil)
	inv := invocation()
	inv.Deadline = time.Now().Add(-time.Second)
	got, err := h.Amend(t.Context(), inv, agent.Outcome{Result: registry.Result{Output: canary}}, nil)
	if err != nil || got.Output != "***" {
		t.Errorf("%+v, %v", got, err)
	}
}
