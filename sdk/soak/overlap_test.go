package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// overlap is what outlives a pod that another commit replaces: keys, questions to a person, conversations, and group
// calls whose devices are on pods of both commits. Each pod has a device of its own, which connects to it again.
type overlap struct {
	t     *testing.T
	fleet *fleet
	pods  [2]*pod
	now   string // the program of this commit
	made  int    // texts so far

	keys      []madeKey  // that work; the oldest is rotated and revoked
	questions []question // that wait for a person

	over    chan struct{} // closed when no turn begins any more
	talking sync.WaitGroup

	mu    sync.Mutex
	runs  map[string]int // of the devices, by text
	turns []string       // answers that callers read
}

// madeKey is a key of a caller.
type madeKey struct{ id, key string }

// question is a call that waits for an approver.
type question struct{ callID, approval, text string }

// phones are the sessions of the devices, in the order of their pods.
var phones = [2]string{"phone-a", "phone-b"}

// talkingModel is a model that notes each message with the tool of the conversation's device, and says what that said.
// Pods with these settings use it.
func talkingModel(t *testing.T) (settings []string) {
	t.Helper()
	turn := regexp.MustCompile(`(turn|said)-\d+`)
	server := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		last := r.Messages[len(r.Messages)-1]
		text := turn.FindString(last.Content)
		if last.Role != provider.RoleUser {
			return scripted.Reply(scripted.Text("It said: " + last.Content))
		}
		if !slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.Name == "note" }) {
			return scripted.Reply(scripted.Text("I cannot note " + text))
		}
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "note", Args: `{"text":"` + text + `"}`}))
	})
	return []string{"FARHAND_MODEL=m", "FARHAND_MODEL_URL=" + server.URL, "FARHAND_MODEL_KEY=sk-test"}
}

// startOverlap connects the devices, and begins a turn each second.
func startOverlap(t *testing.T, f *fleet, pods [2]*pod, now string) *overlap {
	t.Helper()
	o := &overlap{t: t, fleet: f, pods: pods, now: now, over: make(chan struct{}), runs: map[string]int{}}
	for i := range pods {
		o.connect(i)
	}
	o.talking.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-o.over:
				return
			case <-time.After(time.Second):
				o.say(pods[i%2], phones[i/2%2], fmt.Sprintf("turn-%d", i))
			}
		}
	})
	return o
}

// connect connects the device of a pod.
func (o *overlap) connect(i int) {
	o.t.Helper()
	handle := func(_ context.Context, call client.Call) (any, error) {
		var args struct{ Text string }
		if err := json.Unmarshal(call.Args, &args); err != nil {
			return nil, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.runs[args.Text]++
		return "noted " + args.Text, nil
	}
	device, err := client.New(o.pods[i].url(), client.WithToken(o.fleet.token), client.WithSession(phones[i]),
		client.WithDevice(phones[i], "", "soak"), client.WithBackoff(20*time.Millisecond, 500*time.Millisecond),
		client.WithTool(client.Tool{Name: "note", Description: "Notes a text."}, handle),
		client.WithTool(client.Tool{
			Name: "careful", Description: "Notes a text if a person agrees.", SecurityLevel: "user_confirm",
		}, handle))
	must(o.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := device.Run(ctx); ctx.Err() == nil {
			o.t.Errorf("%s gave up: %v", phones[i], err)
		}
	}()
	o.t.Cleanup(func() { cancel(); <-ended })
	testkit.Receive(o.t, "the registration of "+phones[i], device.Ready())
}

// text returns a text that no call had.
func (o *overlap) text(of string) string {
	o.made++
	return fmt.Sprintf("%s-%d", of, o.made)
}

// ran returns how often a text ran.
func (o *overlap) ran(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.runs[text]
}

// say says something to the agent of a session on a pod, and reports whether it answered. The pod may be gone, stopping
// or waiting for another turn; the device may be away for longer than its call waits.
func (o *overlap) say(p *pod, session, text string) bool {
	var said struct {
		Answer string `json:"full_response"`
	}
	status, body := o.ask(http.MethodPost, p, "/api/sessions/"+session+"/messages", o.fleet.token,
		map[string]any{"content": text}, &said)
	switch status {
	case http.StatusOK:
		if !regexp.MustCompile(text + `\b|lost|not_connected`).MatchString(said.Answer) {
			o.t.Errorf("pod %s answers %q with %s", p.id(), text, body)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.turns = append(o.turns, said.Answer)
	case 0, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		o.t.Errorf("pod %s answers %q with %d %s", p.id(), text, status, body)
	}
	return status == http.StatusOK
}

// begin begins, before a pod is replaced, what ends afterwards: a key of that pod, and a question of either pod.
func (o *overlap) begin(leaving *pod) {
	o.t.Helper()
	var made struct{ ID, Key string }
	o.want(http.MethodPost, leaving, "/api/keys", o.fleet.token, http.StatusCreated,
		map[string]any{"name": "soak", "tenant": "default", "roles": []string{"caller"}}, &made)
	o.keys = append(o.keys, madeKey{made.ID, made.Key})
	for i, p := range o.pods {
		q := question{text: o.text("question")}
		var asked struct {
			CallID   string `json:"call_id"`
			Approval string `json:"approval_id"`
		}
		o.want(http.MethodPost, p, "/api/sessions/"+phones[1-i]+"/tools/careful/call", made.Key, http.StatusAccepted,
			map[string]any{"args": map[string]any{"text": q.text}, "mode": "async"}, &asked)
		q.callID, q.approval = asked.CallID, asked.Approval
		if q.approval == "" {
			o.t.Fatalf("pod %s asks no one: %+v", p.id(), asked)
		}
		o.questions = append(o.questions, q)
	}
}

// finish ends on a pod that has just come what began before it, and uses what the pods share on each of them.
func (o *overlap) finish(came *pod) {
	o.t.Helper()
	o.fleet.http.CloseIdleConnections()
	for i, p := range o.pods {
		testkit.Eventually(o.t, phones[i]+" is back", func() bool {
			var s struct {
				Pod   string
				Tools []any
			}
			status, _ := o.ask(http.MethodGet, came, "/api/sessions/"+phones[i], o.fleet.token, nil, &s)
			return status == http.StatusOK && s.Pod == p.id() && len(s.Tools) == 2
		})
	}
	for _, q := range o.questions {
		o.decide(came, q)
	}
	o.questions = nil
	for _, p := range o.pods {
		for _, k := range o.keys {
			o.callGroup(p, k.key)
		}
		testkit.Eventually(o.t, "a turn on each pod", func() bool { return o.say(p, phones[0], o.text("said")) })
	}
	if len(o.keys) > 1 {
		o.retire(came, o.keys[0])
		o.keys = o.keys[1:]
	}
}

// decide allows a call, which then runs once.
func (o *overlap) decide(p *pod, q question) {
	o.t.Helper()
	if n := o.ran(q.text); n != 0 {
		o.t.Errorf("%s ran %d times before a person allowed it", q.text, n)
	}
	var decided, rec struct{ State, Output string }
	o.want(http.MethodPost, p, "/api/approvals/"+q.approval, o.fleet.token, http.StatusOK,
		map[string]any{"decision": "allow-once"}, &decided)
	testkit.Eventually(o.t, "the call that was allowed has ended", func() bool {
		status, _ := o.ask(http.MethodGet, p, "/api/calls/"+q.callID+"?wait_ms=2000", o.fleet.token, nil, &rec)
		return status == http.StatusOK && record{State: rec.State}.isFinal()
	})
	if decided.State != "allowed" || rec.State != "succeeded" || rec.Output != "noted "+q.text || o.ran(q.text) != 1 {
		o.t.Errorf("pod %s decides %s: %+v, then %+v; it ran %d times", p.id(), q.text, decided, rec, o.ran(q.text))
	}
}

// callGroup calls the devices of both pods with a key. An old commit may not have group calls.
func (o *overlap) callGroup(p *pod, key string) {
	o.t.Helper()
	text := o.text("group")
	var group struct {
		State   string
		Results []struct{ State, Output string }
	}
	status, body := o.ask(http.MethodPost, p, "/api/calls", key, map[string]any{
		"tool": "note", "args": map[string]any{"text": text}, "target": map[string]any{"session_ids": phones},
	}, &group)
	if status == http.StatusMethodNotAllowed && p.program != o.now {
		return
	}
	heard := 0
	for _, r := range group.Results {
		if r.State == "succeeded" && r.Output == "noted "+text {
			heard++
		}
	}
	if group.State != "succeeded" || heard != len(phones) || o.ran(text) != len(phones) {
		o.t.Errorf("pod %s calls a group: %d %s; it ran %d times", p.id(), status, body, o.ran(text))
	}
}

// retire rotates a key, uses both secrets on the pods, and revokes it.
func (o *overlap) retire(p *pod, old madeKey) {
	o.t.Helper()
	var rotated struct{ Key string }
	o.want(http.MethodPost, p, "/api/keys/"+old.id+"/rotate", o.fleet.token, http.StatusOK,
		map[string]any{"overlap": 60}, &rotated)
	for _, on := range o.pods {
		for _, key := range []string{old.key, rotated.Key} {
			testkit.Eventually(o.t, "a rotated key works on each pod", func() bool {
				status, _ := o.ask(http.MethodGet, on, "/api/me", key, nil, nil)
				return status == http.StatusOK
			})
		}
	}
	o.want(http.MethodDelete, p, "/api/keys/"+old.id, o.fleet.token, http.StatusNoContent, nil, nil)
	for _, on := range o.pods {
		for _, key := range []string{old.key, rotated.Key} {
			testkit.Eventually(o.t, "a revoked key works on no pod", func() bool {
				status, _ := o.ask(http.MethodGet, on, "/api/me", key, nil, nil)
				return status == http.StatusUnauthorized
			})
		}
	}
}

// end ends the turns, and checks that each pod has every answer that a caller read, and that nothing ran twice.
func (o *overlap) end() {
	o.t.Helper()
	close(o.over)
	o.talking.Wait()
	for _, p := range o.pods {
		var kept []string
		for _, session := range phones {
			var transcript struct{ Messages []struct{ Content string } }
			path := "/api/sessions/" + session + "/messages?limit=1000"
			o.want(http.MethodGet, p, path, o.fleet.token, http.StatusOK, nil, &transcript)
			for _, m := range transcript.Messages {
				kept = append(kept, m.Content)
			}
		}
		for _, answer := range o.turns {
			if !slices.Contains(kept, answer) {
				o.t.Errorf("the transcript of pod %s lacks %q", p.id(), answer)
			}
		}
	}
	for text, n := range o.runs {
		if n > 1 && !strings.HasPrefix(text, "group-") {
			o.t.Errorf("%s ran %d times", text, n)
		}
	}
	o.t.Logf("%d turns answered, %d texts ran", len(o.turns), len(o.runs))
}

// want makes a request of a pod that runs, which answers with a status.
func (o *overlap) want(method string, p *pod, path, token string, status int, body, into any) {
	o.t.Helper()
	if got, text := o.ask(method, p, path, token, body, into); got != status {
		o.t.Fatalf("pod %s, %s %s: %d %s", p.id(), method, path, got, text)
	}
}

// ask makes a request of a pod. Status 0 is no answer, with the reason in text.
func (o *overlap) ask(method string, p *pod, path, token string, body, into any) (status int, text string) {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	if body == nil {
		raw = nil
	}
	r, err := http.NewRequest(method, p.url()+path, bytes.NewReader(raw))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := o.fleet.http.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	if into != nil && resp.StatusCode < 300 {
		if err := json.Unmarshal(answer, into); err != nil {
			return 0, fmt.Sprintf("%v: %s", err, answer)
		}
	}
	return resp.StatusCode, string(answer)
}
