package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// crowdSize is how many conversations there are at once.
const crowdSize = 200

// nonce is a word that belongs to one conversation only: wherever it shows up, that conversation has been.
var nonce = regexp.MustCompile(`nonce-[0-9a-f]{12}`)

func newNonce() string { return "nonce-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12] }

// onlyOwn reports nonces in a text that are another conversation's, or none at all.
func onlyOwn(t testing.TB, where, own, text string) {
	t.Helper()
	found := nonce.FindAllString(text, -1)
	if len(found) == 0 {
		t.Errorf("%s: nothing of %s", where, own)
	}
	for _, n := range found {
		if n != own {
			t.Errorf("%s: %s is mixed up with %s", where, own, n)
		}
	}
}

// crowdModel answers by what it is asked alone: two calls side by side, another one, a last word. It begins when all
// conversations are there. A call that failed because the store or the other pod did not answer in time, as on a
// machine that is as busy as a crowd makes it, is made again.
type crowdModel struct {
	t         testing.TB
	begun     atomic.Int64  // conversations
	everybody chan struct{} // closed when they are all there
}

func newCrowdModel(t testing.TB) *crowdModel {
	return &crowdModel{t: t, everybody: make(chan struct{})}
}

func (m *crowdModel) answer(r scripted.Request) scripted.Step {
	own := nonce.FindString(r.Messages[0].Content)
	onlyOwn(m.t, "a request to the model", own, string(r.Raw))
	if !slices.ContainsFunc(r.Messages, func(m provider.Message) bool { return m.Role == provider.RoleTool }) &&
		m.begun.Add(1) == crowdSize {
		close(m.everybody)
	}
	var calls []scripted.Call
	for n := 1; n <= 3; n++ {
		if args := fmt.Sprintf(`{"nonce":%q,"n":%d}`, own, n); !heardOf(r, provider.RoleTool, "done: "+args) {
			calls = append(calls, echoing(args))
		}
	}
	switch {
	case len(calls) > 1: // the third one comes when the first two are done
		return scripted.Reply(scripted.Hold(m.everybody), scripted.Calls(calls[:len(calls)-1]...))
	case len(calls) == 1 && !heardOf(r, provider.RoleAssistant, "Looking at"):
		return scripted.Reply(scripted.Text("Looking at ", own, ". "), scripted.Calls(calls...))
	case len(calls) == 1:
		return calling(calls...)
	default:
		return saying("That was ", own, ".")
	}
}

// heardOf reports whether the model was told something.
func heardOf(r scripted.Request, who provider.Role, text string) bool {
	return slices.ContainsFunc(r.Messages, func(m provider.Message) bool {
		return m.Role == who &&
			strings.Contains(m.Content, text)
	})
}

// speaker is one of the crowd.
type speaker struct {
	nonce, session, asked, reader string
	phone                         *phone
	events                        *inbox
}

// runCrowd has conversations at once on two pods, device, caller and reader on either, and checks that nothing of one
// is ever seen in another.
func runCrowd(t *testing.T, m *crowdModel, pods []string) {
	t.Helper()
	crowd := make([]*speaker, crowdSize)
	for i := range crowd {
		own := newNonce()
		s := &speaker{nonce: own, session: fmt.Sprintf("crowd-%d-%s", i, own[6:]), reader: pods[(i+1)%2]}
		crowd[i] = s
		s.phone = connectPhone(t, pods[i%2], s.session, func(_ *phone, call said) (string, bool) {
			onlyOwn(t, "a call", own, string(call.Args))
			return "done: " + string(call.Args), true
		})
	}
	for i, s := range crowd {
		s.asked = pods[i/8%2]
		if i%4 < 2 {
			s.asked = "" // over its own socket
		}
		s.say(t)
	}
	eventually(t, waitLimit, "all of the crowd talk", func() bool {
		for _, s := range crowd { // all others wait for one that does not begin
			if heard := s.events.all()[s.events.read:]; len(heard) > 0 && heard[len(heard)-1].Type == "error" {
				t.Logf("%s asks again: %+v", s.session, heard[len(heard)-1])
				s.say(t)
			}
		}
		return m.begun.Load() >= int64(len(crowd))
	})
	for _, s := range crowd {
		s.check(t)
	}
}

// say asks for the turn. Asking again forgets what was heard of the turn before.
func (s *speaker) say(t testing.TB) {
	t.Helper()
	text := "Tell me of " + s.nonce
	if s.asked != "" {
		s.events, _ = post(t, s.asked, s.session, map[string]any{"content": text})
		return
	}
	s.events = s.phone.inbox
	s.events.read = len(s.events.all())
	s.phone.send(map[string]any{"type": "message", "content": text})
}

// end waits for the end of a turn. One that was stopped because the store did not answer in time is asked for again.
func (s *speaker) end(t testing.TB) (events []said, again bool) {
	t.Helper()
	for began := time.Now(); ; again = true {
		events = rest(s.events)
		last := events[len(events)-1]
		stopped := last.Type == "error" && (strings.Contains(last.Message, "cannot reach its store") ||
			strings.Contains(last.Message, "lost its lease on the conversation"))
		if !stopped || time.Since(began) > waitLimit {
			return events, again
		}
		t.Logf("%s asks again: %+v", s.session, last)
		settledTranscript(t, s.reader, s.session)
		s.say(t)
	}
}

// check waits for the end of a conversation and looks for everything it should have, and nothing else.
func (s *speaker) check(t testing.TB) {
	t.Helper()
	events, askedAgain := s.end(t)
	last, results := events[len(events)-1], only(events, "tool_result")
	if want := fmt.Sprintf("Looking at %s. That was %[1]s.", s.nonce); last.Type != "done" ||
		!askedAgain && (last.FullResponse != want || textOf(events) != want) {
		t.Errorf("%s ended with %+v", s.session, last)
	}
	calls := make(map[string]string)
	for _, c := range only(events, "tool_call") {
		calls[c.ID] = string(c.Args)
	}
	done, again := 0, 0
	for _, r := range results {
		switch {
		case r.Status == "completed" && strings.Contains(r.Output, "done: "+calls[r.ID]):
			done++
		case r.Status == "failed" && (strings.Contains(r.Output, string(registry.CodeStoreUnavailable)) ||
			strings.HasPrefix(r.Output, string(registry.CodeLost)+":")):
			again++
		default:
			t.Errorf("%s: the result of %s is %+v", s.session, calls[r.ID], r)
		}
	}
	if done != 3 && !askedAgain || len(calls) != done+again {
		t.Errorf("%s: %d calls, %d done", s.session, len(calls), done)
	}
	heard, err := json.Marshal(append(s.phone.all(), events...))
	if err != nil {
		t.Fatal(err)
	}
	onlyOwn(t, "what is heard of "+s.session, s.nonce, string(heard))
	tr := settledTranscript(t, s.reader, s.session)
	if again > 0 || askedAgain {
		t.Logf("%s: %d calls were made again", s.session, again)
	} else if !strings.HasSuffix(tr.shape(), "u a2 t t a1 t a") {
		t.Errorf("%s: the transcript is %s", s.session, tr.raw)
	}
	onlyOwn(t, "the transcript of "+s.session, s.nonce, tr.raw)
}

// TestCrowd: two hundred conversations at once on two pods do not get mixed up.
func TestCrowd(t *testing.T) {
	model := newCrowdModel(t)
	server := scripted.OpenAIFunc(t, model.answer)
	pods := startFleet(t, 2, redistest.Single(t), "FARHAND_MODEL=m", "FARHAND_MODEL_URL="+server.URL)
	began := time.Now()
	runCrowd(t, model, []string{pods[0].url, pods[1].url})
	t.Logf("%d conversations in %v", crowdSize, time.Since(began).Round(time.Millisecond))
}

// TestCrowdLeavesNothing has two crowds one after the other on two gateways in this process, and looks whether the
// second leaves more than the first.
func TestCrowdLeavesNothing(t *testing.T) {
	var model atomic.Pointer[scripted.Server] // one for each crowd: it remembers all it was asked
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		model.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(relay.Close)
	redis := "FARHAND_REDIS_URL=" + redistest.Single(t)
	var pods []string
	for range 2 {
		pods = append(pods, startGateway(t, redis, redisMayStall, "FARHAND_RETENTION=5s", "FARHAND_ACTIVITY_CAP=1000",
			"FARHAND_MODEL=m", "FARHAND_MODEL_PROVIDER="+providerAnthropic, "FARHAND_MODEL_URL="+relay.URL))
	}
	crowd := func(name string) {
		t.Run(name, func(t *testing.T) {
			m := newCrowdModel(t)
			model.Store(scripted.AnthropicFunc(t, m.answer))
			runCrowd(t, m, pods)
		})
		model.Store(nil)
		relay.CloseClientConnections() // else the gateways keep one for every conversation
	}
	crowd("warm")
	before := settled(math.MaxInt)
	crowd("next")
	settled(before.goroutines+spare).compare(t, before, before.heap*9/8+(2<<20))
}
