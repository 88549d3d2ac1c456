package api_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// secret is what a device says and nobody may read.
const secret = "hunter2"

// redactor takes the secret out of every result.
type redactor struct{}

func (redactor) Name() string { return "redactor" }

func (redactor) Amend(_ context.Context, inv agent.Invocation, out agent.Outcome, err error) (registry.Result, error) {
	r := out.Result
	r.Output, r.Error = strings.ReplaceAll(r.Output, secret, "***"), strings.ReplaceAll(r.Error, secret, "***")
	if !r.Structured.IsZero() {
		r.Structured = registry.MustJSON(strings.ReplaceAll(r.Structured.String(), secret, "***"))
	}
	if strings.Contains(r.Output, "all of it") {
		return registry.Result{}, registry.Errorf(registry.CodePolicyDenied, "Not for you.")
	}
	if inv.Spec.Name != "t" || inv.Session.Key.Session != "s1" || inv.CallID == "" ||
		inv.Caller.Tenant != registry.DefaultTenant {
		r.Output = "asked about an unknown call"
	}
	return r, err
}

// telltale answers with the secret in every place there is, and says it while it works.
func telltale(routing.DeviceCall) (registry.Result, bool) {
	return registry.NewResult(true, registry.MustJSON(`{"password":"`+secret+`"}`), "said "+secret), true
}

// onEachStore runs a test with a fleet of two pods over each store there is.
func onEachStore(t *testing.T, s setup, test func(f *fleet)) {
	t.Helper()
	s.pods = 2
	t.Run("memory", func(t *testing.T) { test(newFleet(t, s)) })
	t.Run("redis", func(t *testing.T) {
		s := s
		s.redis = redistest.Single(t)
		test(newFleet(t, s))
	})
}

// sealed fails the test if an answer has the secret, or nothing where it was.
func sealed(t *testing.T, what string, body []byte) {
	t.Helper()
	if bytes.Contains(body, []byte(secret)) || !bytes.Contains(body, []byte("***")) {
		t.Errorf("%s: %s", what, body)
	}
}

// What a hook takes out of a result is read nowhere: not with the answer, not with a replay, not in the record, and on
// no pod.
func TestAmendedResultsAreReadByAll(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{redactor{}}}, func(f *fleet) {
		f.connect(1, session("s1"), telltale, tools("t")...)
		call := func(body string, pod int) reply {
			return f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body, pod: pod})
		}
		sealed(f.T, "a plain call", call(`{}`, 0).body)
		for pod := range 2 {
			sealed(f.T, "a keyed call, or its replay", call(`{"idempotency_key":"k"}`, pod).body)
		}
		keyed := decode[answer](call(`{"idempotency_key":"k"}`, 0), 200)
		started, _ := f.start(0, `{"mode":"async"}`)
		for pod := range 2 {
			for _, id := range []string{keyed.CallID, started.CallID} {
				sealed(f.T, "waiting for the record", f.send(request{path: "/api/calls/" + id + "?wait_ms=10000",
					pod: pod}).body)
				sealed(f.T, "the record", f.send(request{path: "/api/calls/" + id, pod: pod}).body)
				sealed(f.T, "cancelling", f.send(request{method: http.MethodDelete, path: "/api/calls/" + id,
					pod: pod}).body)
			}
		}
		if r := f.get("/api/calls"); bytes.Contains(r.body, []byte(secret)) {
			f.Errorf("the list: %s", r.body)
		}
	})
}

// Requests that join a call that runs read what the first one reads.
func TestJoinedCallsReadTheAmendedResult(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{redactor{}}}, func(f *fleet) {
		opened := make(chan struct{})
		d := f.connect(1, session("s1"), func(c routing.DeviceCall) (registry.Result, bool) {
			<-opened
			return telltale(c)
		}, tools("t")...)
		replies := make(chan reply, 4)
		for i := range 4 {
			go func() {
				r, _ := f.try(request{method: http.MethodPost, path: "/api/tools/t/call",
					body: `{"idempotency_key":"k"}`, pod: i % 2})
				replies <- r
			}()
		}
		d.delivered()
		close(opened)
		for range 4 {
			sealed(f.T, "a joined call", await(f.T, "an answer", replies).body)
		}
	})
}

// An answer that comes after its caller has gone is amended before it is kept.
func TestLateAnswersAreAmended(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{redactor{}}}, func(f *fleet) {
		for name, body := range map[string]string{
			"light": `{"timeout_ms":3000}`, "keyed": `{"timeout_ms":300,"idempotency_key":"k"}`,
			"async": `{"timeout_ms":3000,"mode":"async"}`,
		} {
			d := f.connect(1, session("s1"), silent, tools("t")...)
			f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body, pod: 0})
			sent := d.delivered()
			f.eventually("the call has ended: "+name, func() bool {
				r := f.send(request{path: "/api/calls/" + sent.ID + "?wait_ms=5000", pod: 0})
				return r.status == 200 && decode[record](r, 200).State.Final()
			})
			late, _ := telltale(sent)
			d.settle(sent.ID, late)
			f.eventually("the late answer is kept: "+name, func() bool {
				return f.record(0, sent.ID,
					"").Output != nil
			})
			for pod := range 2 {
				sealed(f.T, name+", late", f.send(request{path: "/api/calls/" + sent.ID, pod: pod}).body)
			}
			if name == "keyed" {
				sealed(f.T, "a replay", f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body,
					pod: 0}).body)
			}
			d.gone()
		}
	})
}

// What a hook withholds altogether is withheld from a keyed caller as it is from a plain one.
func TestWithheldResultsAreWithheldFromAll(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{redactor{}}}, func(f *fleet) {
		f.connect(1, session("s1"), func(routing.DeviceCall) (registry.Result, bool) {
			return registry.Result{Success: true, Output: "all of it: " + secret}, true
		}, tools("t")...)
		for _, body := range []string{`{}`, `{"idempotency_key":"k"}`, `{"idempotency_key":"k"}`} {
			r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body})
			if p := decode[problem](r, 403); p.Code != registry.CodePolicyDenied ||
				p.Dispatched != registry.DispatchedYes || bytes.Contains(r.body, []byte(secret)) {
				f.Errorf("%s: %s", body, r.body)
			}
		}
		started, _ := f.start(0, `{"mode":"async"}`)
		r := f.send(request{path: "/api/calls/" + started.CallID + "?wait_ms=10000"})
		if rec := decode[record](r, 200); bytes.Contains(r.body, []byte(secret)) ||
			!strings.Contains(rec.Error, "Not for you") {
			f.Errorf("the record: %s", r.body)
		}
	})
}

// Parts of a result that are reported before its end, which no hook sees, are withheld where there is a hook that
// amends.
func TestProgressIsNoWayAround(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{redactor{}}}, func(f *fleet) {
		answers, open := gate()
		d := f.connect(1, session("s1"), answers, tools("t")...)
		feed := f.follow(0, "/api/events", "")
		started, _ := f.start(0, `{"mode":"async"}`)
		sent := d.delivered()
		half := 0.5
		f.must(d.local.Progress(sent.ID, &half, nil, "I say "+secret, "a part: "+secret))
		open()
		f.record(0, started.CallID, "?wait_ms=10000")
		r := f.send(request{path: "/api/calls/" + started.CallID + "/events"})
		if bytes.Contains(r.body, []byte(secret)) || !bytes.Contains(r.body, []byte("0.5")) {
			f.Errorf("the events of the call: %s", r.body)
		}
		for ended := false; !ended; {
			e := feed.next()
			if bytes.Contains(e.data, []byte(secret)) {
				f.Errorf("the feed: %s", e.data)
			}
			ended = e.kind == registry.ActivityCall
		}
	})
}

// A tool of the gateway is amended, too, and once: by the pod that ran it, which knows all of the call.
func TestDurableCallsAreAmendedOnce(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{adds{}}}, func(f *fleet) {
		f.connect(1, session("s1"), echo, tools("t")...)
		for _, body := range []string{`{"args":{"n":1}}`, `{"args":{"n":1},"idempotency_key":"k"}`,
			`{"args":{"n":1},"idempotency_key":"k"}`} {
			r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body})
			if a := decode[answer](r, 200); a.Output != `{"n":1}+` {
				f.Errorf("%s: %s", body, r.body)
			}
		}
	})
}

// adds is a hook of which it is seen how often it amended.
type adds struct{}

func (adds) Name() string { return "adds" }

func (adds) Amend(_ context.Context, _ agent.Invocation, out agent.Outcome, err error) (registry.Result, error) {
	out.Result.Output += "+"
	return out.Result, err
}
