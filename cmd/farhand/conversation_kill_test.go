package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// cutOff is a turn that will be cut off because its pod ends: in the middle of words or of a call, asked for through
// either endpoint. Over HTTP, the device is connected to another pod.
type cutOff struct {
	*scene
	inCall bool
	events *inbox
}

// shape is what its transcript looks like, once it was cut off.
func (c *cutOff) shape() string {
	if c.inCall {
		return "u a2 t! t!"
	}
	return "u a~"
}

// half is what was said before.
const half = "Half of it, "

// beginCutOffs begins such turns on a pod and returns when they are in the middle, and as much of them as was said is
// stored.
func beginCutOffs(t testing.TB, model *stage, on, elsewhere, reader string, end scripted.Part) []*cutOff {
	t.Helper()
	var all []*cutOff
	for _, endpoint := range []string{viaHTTP, viaSocket} {
		for _, inCall := range []bool{false, true} {
			l, name := layout{"elsewhere", elsewhere, on, reader}, "words"
			if endpoint == viaSocket {
				l.name, l.device = "here", on
			}
			if inCall {
				name = "call"
			}
			c := &cutOff{scene: newScene(t, model, l, endpoint, name), inCall: inCall}
			if inCall {
				c.moveIn(func(_ *phone, call said) (string, bool) {
					return "done",
						strings.Contains(string(call.Args), "quick")
				})
				c.answers(scripted.Reply(scripted.Text(half),
					scripted.Calls(echoing(`{"n":"quick"}`), echoing(`{"n":"never"}`))))
			} else {
				c.answers(scripted.Reply(scripted.Text(half), end, scripted.Text("never said")))
			}
			c.events = c.begin("speak")
			all = append(all, c)
		}
	}
	for _, c := range all {
		if c.inCall {
			c.phone.first("result_acknowledged", ofType("result_acknowledged"))
			c.phone.holds(func(heard []said) bool { return len(only(heard, "tool_call_request")) == 2 })
		}
		eventually(t, waitLimit, "what was said is stored", func() bool {
			tr := readTranscript(t, reader, c.name)
			return tr.Busy && len(tr.Messages) == 2 && tr.Messages[1].Content == half
		})
	}
	return all
}

// TestKilledInATurn: a pod dies in the middle of turns. Devices come back elsewhere, nothing of what was said is lost,
// and the next turn works as soon as the lease has lapsed.
func TestKilledInATurn(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	for _, vendor := range vendors {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			model := openStage(t, vendor)
			fleet := startFleet(t, 3, redis, model.settings()...)
			victim, elsewhere, reader := fleet[0], fleet[1].url, fleet[2].url
			turns := beginCutOffs(t, model, victim.url, elsewhere, reader, scripted.Hold(nil))
			victim.signal(syscall.SIGKILL)
			victim.exit(t)
			killed := time.Now()
			for _, c := range turns {
				c.afterKill(elsewhere)
			}
			for _, c := range turns {
				c.goesOn(killed)
			}
		})
	}
}

// afterKill reconnects the device, if it was connected to the pod, and reads what there is while the lease runs.
func (c *cutOff) afterKill(elsewhere string) {
	c.Helper()
	c.askAt = elsewhere
	stored := 1 // the draft is no message yet
	if c.inCall {
		stored = 2
	}
	if c.endpoint == viaSocket {
		c.phone.disconnect()
		c.device = elsewhere
		c.phone = connectPhone(c.TB, c.device, c.name, nil)
		if o := c.phone.opening; !o.Resumed || o.MessageCount != stored {
			c.Errorf("%s: the session begins with %+v", c.name, o)
		}
	}
	if tr := readTranscript(c.TB, c.reader, c.name); len(tr.Messages) != 2 || tr.Messages[1].Content != half {
		c.Errorf("%s: what was said is lost: %s", c.name, tr.raw)
	}
	c.answers(calling(echoing(`{"n":"quick"}`)), saying("Here I am."))
	if c.inCall { // at once: it waits
		c.events = c.begin("well?")
	}
}

// goesOn has the next turn.
func (c *cutOff) goesOn(killed time.Time) {
	c.Helper()
	if !c.inCall { // once the conversation is free
		c.looks(c.shape())
		c.events = c.begin("well?")
	}
	c.goodEnd(rest(c.events))
	c.Logf("%s: went on %v after the pod was killed", c.name, time.Since(killed).Round(time.Millisecond))
	tr := c.looks(c.shape() + " u a1 t a")
	if strings.Contains(tr.raw, "never said") || tr.Messages[1].Content != half {
		c.Errorf("%s: %s", c.name, tr.raw)
	}
	heard := c.asked(1).Messages
	if len(heard) != len(strings.Fields(c.shape()))+1 || heard[1].Content != half {
		c.Errorf("%s: the model was asked %+v", c.name, heard)
	}
}

// TestDrainLetsTurnsEnd: a pod that drains lets running turns finish.
func TestDrainLetsTurnsEnd(t *testing.T) {
	t.Parallel()
	model := openStage(t, providerOpenAI)
	fleet := startFleet(t, 2, redistest.Single(t), model.settings()...)
	leaving, other := fleet[0], fleet[1].url
	release := make(chan struct{})
	var turns []*cutOff
	for _, endpoint := range []string{viaHTTP, viaSocket} {
		s := newScene(t, model, layout{"drained", leaving.url, leaving.url, other}, endpoint, "ends")
		s.moveIn(func(_ *phone, call said) (string, bool) { <-release; return string(call.Args), true })
		s.answers(scripted.Reply(scripted.Text(half), scripted.Calls(echoing(`{"n":"late"}`))), saying("and the rest."))
		turns = append(turns, &cutOff{scene: s, events: s.begin("speak")})
		s.phone.holds(func(heard []said) bool { return len(only(heard, "tool_call_request")) == 1 })
	}
	leaving.signal(syscall.SIGTERM)
	eventually(t, waitLimit, "the pod says that it stops", func() bool {
		status, _ := request(t, http.MethodGet, leaving.url+"/readyz", "")
		return status == http.StatusServiceUnavailable
	})
	close(release)
	for _, c := range turns {
		if text := textOf(c.goodEnd(rest(c.events))); text != half+"and the rest." {
			t.Errorf("%s: heard %q", c.name, text)
		}
		c.looks("u a1 t a")
	}
	if code := leaving.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDrainCutsTurnsOff: turns that do not end in time are cut off in good order: whoever asked hears of it, what was
// said is kept, and the conversation is free at once.
//
// Turns are cut off before half of the time is over. The rest is room for a machine that stalls.
func TestDrainCutsTurnsOff(t *testing.T) {
	t.Parallel()
	model := openStage(t, providerAnthropic)
	fleet := startFleet(t, 3, redistest.Single(t), append(model.settings(), "FARHAND_DRAIN_TIMEOUT=12s")...)
	leaving, elsewhere, reader := fleet[0], fleet[1].url, fleet[2].url
	turns := beginCutOffs(t, model, leaving.url, elsewhere, reader, scripted.Hold(nil))
	leaving.signal(syscall.SIGTERM)
	for _, c := range turns {
		last := c.events.first("end", func(e said) bool { return e.ended() || e.Type == closed })
		if last.Type != "error" || !strings.Contains(last.Message, "stopping") {
			t.Errorf("%s: ended with %+v", c.name, last)
		}
		if c.endpoint == viaSocket && !c.phone.has(ofType("server_draining")) {
			t.Errorf("%s: the device was not told of the drain", c.name)
		}
	}
	if code := leaving.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, c := range turns {
		if tr := readTranscript(t, reader, c.name); tr.Busy {
			t.Errorf("%s: the conversation is not free", c.name)
		}
		tr := c.transcript()
		want := c.shape()
		if c.inCall {
			want = "u a2 t t!" // there was time to keep the result there was
		}
		if tr.shape() != want || tr.Messages[1].Content != half {
			t.Errorf("%s: %s", c.name, tr.raw)
		}
		c.phone.disconnect()
		c.device, c.askAt = elsewhere, elsewhere
		c.phone = connectPhone(t, elsewhere, c.name, nil)
		if o := c.phone.opening; !o.Resumed || o.MessageCount != tr.MessageCount {
			t.Errorf("%s: the session begins with %+v", c.name, o)
		}
		c.answers(saying("Here I am."))
		c.good("well?")
	}
}
