package main

import (
	"net/http"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider/scripted"
)

func brokenStream(s *scene) {
	s.answers(scripted.Reply(scripted.Text("Half of ", "it"), scripted.Cut()), saying("The rest."))
	if text := textOf(s.failsWith("PROVIDER_ERROR", "speak")); text != "Half of it" {
		s.Errorf("heard %q", text)
	}
	if tr := s.looks("u a~"); tr.Messages[1].Content != "Half of it" {
		s.Errorf("the transcript: %s", tr.raw)
	}
	s.good("go on")
	if heard := s.asked(1).Messages; len(heard) != 3 || heard[1].Content != "Half of it" {
		s.Errorf("the model was asked %+v", heard)
	}
	s.looks("u a~ u a")
}

// A call that came with half an answer does not run.
func brokenCall(s *scene) {
	s.answers(scripted.Reply(scripted.Text("I look. "), scripted.Calls(echoing(`{"n":1}`)), scripted.Cut()),
		saying("No."))
	s.failsWith("PROVIDER_ERROR", "look")
	if s.phone.has(ofType("tool_call_request")) {
		s.Error("the device was called")
	}
	s.looks("u a~")
	s.good("well?")
	s.looks("u a~ u a")
}

func keyRefused(s *scene) {
	s.answers(scripted.Fail(http.StatusUnauthorized, "invalid x-api-key"), saying("Hello."))
	events := s.failsWith("AUTH_ERROR", "hello")
	if last := events[len(events)-1]; strings.Contains(last.Message, "sk-of-nobody") {
		s.Errorf("the key is shown: %+v", last)
	}
	s.looks("u")
	s.good("hello?")
	s.looks("u u a")
}

func tooManyRequests(s *scene) {
	s.answers(scripted.Fail(http.StatusTooManyRequests, "slow down"), saying("Hello."))
	if text := textOf(s.good("hello")); text != "Hello." {
		s.Errorf("heard %q", text)
	}
	s.looks("u a")
}

// aborted stops the turn that is under way, and checks what is heard of it.
func (s *scene) aborted(events *inbox) {
	s.Helper()
	s.abort()
	if s.endpoint == viaHTTP {
		return // who has hung up hears nothing
	}
	if ack := events.first("abort_ack", ofType("abort_ack", "aborted")); ack.Type != "abort_ack" ||
		ack.Status != "aborted" {
		s.Errorf("answered with %+v", ack)
	}
	if last := events.first("end", said.ended); last.Type != "aborted" {
		s.Errorf("ended with %+v", last)
	}
}

func abortInWords(s *scene) {
	s.answers(scripted.Reply(scripted.Text("Endless "), scripted.Hold(nil), scripted.Text("words")), saying("Yes?"))
	events := s.begin("talk")
	events.first("the first words", ofType("chunk"))
	s.aborted(events)
	if tr := s.looks("u a~"); tr.Messages[1].Content != "Endless " {
		s.Errorf("the transcript: %s", tr.raw)
	}
	s.good("stop")
	s.looks("u a~ u a")
}

// The device receives the cancellation.
func abortInACall(s *scene) {
	s.moveIn(func(*phone, said) (string, bool) { return "", false })
	s.answers(scripted.Reply(scripted.Text("I look. "), scripted.Calls(echoing(`{"n":1}`), echoing(`{"n":2}`))),
		saying("Yes?"))
	events := s.begin("look")
	calls := s.phone.first("the first call", ofType("tool_call_request"))
	second := s.phone.first("the second call", ofType("tool_call_request"))
	s.aborted(events)
	for _, id := range []string{calls.ID, second.ID} {
		cancelled := func(f said) bool { return f.Type == "tool_call_cancel" && f.ID == id }
		if !s.phone.holds(func(all []said) bool { return slices.ContainsFunc(all, cancelled) }) {
			s.Errorf("the device was not told that %s is cancelled", id)
		}
	}
	if tr := s.looks("u a2 t! t!"); !strings.Contains(tr.Messages[2].Content, "interrupted") {
		s.Errorf("the transcript: %s", tr.raw)
	}
	s.good("stop")
	s.looks("u a2 t! t! u a")
}

// A device that did not say it understands a cancellation is not sent one, and its late answer changes nothing.
func abortUnheard(s *scene) {
	late := make(chan struct{})
	s.moveIn(func(*phone, said) (string, bool) { <-late; return "too late", true })
	s.phone.send(map[string]any{"type": "connect", "v": 1, "capabilities": []string{}})
	s.phone.first("connected", ofType("connected"))
	s.answers(calling(echoing(`{"n":1}`)), saying("Yes?"))
	events := s.begin("look")
	s.phone.first("the call", ofType("tool_call_request"))
	s.aborted(events)
	s.looks("u a1 t!")
	close(late)
	s.phone.first("acknowledgement", ofType("result_acknowledged"))
	s.good("stop")
	if s.phone.has(ofType("tool_call_cancel")) {
		s.Error("the device was sent a tool_call_cancel")
	}
	if tr := s.looks("u a1 t! u a"); strings.Contains(tr.raw, "too late") {
		s.Errorf("the transcript: %s", tr.raw)
	}
}

// A turn over HTTP goes on without the device. Over the device's own socket it ends with it, and what was said is kept.
func deviceGoneInWords(s *scene) {
	release := make(chan struct{})
	s.answers(scripted.Reply(scripted.Text("Half of it, "), scripted.Hold(release), scripted.Text("and the rest.")))
	events := s.begin("speak")
	events.first("the first words", ofType("chunk"))
	s.phone.disconnect()
	shape, asked := "u a~", "Half of it, "
	if s.endpoint == viaHTTP {
		shape, asked = "u a", "Half of it, and the rest."
		close(release)
		events.first("end", ofType("done"))
	}
	s.looks(shape)
	s.device = s.reader
	s.phone = connectPhone(s.TB, s.device, s.name, nil)
	if o := s.phone.opening; !o.Resumed || o.MessageCount != 2 {
		s.Errorf("the session begins with %+v", o)
	}
	s.answers(saying("Welcome back."))
	s.good("well?")
	if heard := s.asked(1).Messages; len(heard) != 3 || heard[1].Content != asked {
		s.Errorf("the model was asked %+v", heard)
	}
	s.looks(shape + " u a")
}

// A turn does not wait for a device that is gone: it hears so, and goes on. Over the device's own socket the turn ends
// with it.
func deviceGoneInACall(s *scene) {
	s.moveIn(func(*phone, said) (string, bool) { return "", false })
	s.answers(calling(echoing(`{"n":1}`)))
	if s.endpoint == viaHTTP {
		s.answers(saying("It is gone."))
	}
	events := s.begin("look")
	s.phone.first("the call", ofType("tool_call_request"))
	s.phone.disconnect()
	if s.endpoint == viaHTTP {
		results := only(s.goodEnd(rest(events)), "tool_result")
		if len(results) != 1 || results[0].Status != "failed" || !strings.Contains(results[0].Output, "connection") {
			s.Errorf("results %+v", results)
		}
		s.looks("u a1 t! a")
		return
	}
	tr := s.looks("u a1 t!")
	s.phone = connectPhone(s.TB, s.reader, s.name, nil)
	if o := s.phone.opening; !o.Resumed || o.MessageCount != len(tr.Messages) {
		s.Errorf("the session begins with %+v", o)
	}
	s.answers(saying("Welcome back."))
	s.good("well?")
	s.looks("u a1 t! u a")
}

// What is said while something is being said waits, also on another pod.
func theSecondWaits(s *scene) {
	release := make(chan struct{})
	s.answers(scripted.Reply(scripted.Text("First"), scripted.Hold(release), scripted.Text(" answer.")),
		saying("Second answer."))
	first := s.begin("first")
	first.first("the first words", ofType("chunk"))
	if s.endpoint == viaHTTP {
		s.askAt = s.reader
	}
	second := s.begin("second")
	close(release)
	if last := first.first("end", said.ended); last.FullResponse != "First answer." {
		s.Errorf("heard %+v", last)
	}
	if last := second.first("end", said.ended); last.FullResponse != "Second answer." {
		s.Errorf("heard %+v", last)
	}
	if tr := s.looks("u a u a"); !strings.HasSuffix(tr.Messages[2].Content, "second") ||
		tr.Messages[1].Content != "First answer." {
		s.Errorf("the transcript: %s", tr.raw)
	}
}

// A conversation has one turn at a time, whichever endpoint its messages come through.
func endpointsTakeTurns(s *scene) {
	release := make(chan struct{})
	s.answers(scripted.Reply(scripted.Text("First"), scripted.Hold(release), scripted.Text(" answer.")),
		saying("Second answer."))
	first, other := s.begin("first"), map[string]string{viaHTTP: viaSocket, viaSocket: viaHTTP}
	first.first("the first words", ofType("chunk"))
	s.endpoint = other[s.endpoint]
	second := s.begin("second")
	close(release)
	if last := first.first("end", said.ended); last.FullResponse != "First answer." {
		s.Errorf("heard %+v", last)
	}
	if last := second.first("end", said.ended); last.FullResponse != "Second answer." {
		s.Errorf("heard %+v", last)
	}
	s.looks("u a u a")
}

// Four may wait; the fifth is refused, and costs the others nothing.
func tooManyWait(s *scene) {
	const waiting = 4
	release := make(chan struct{})
	s.answers(scripted.Reply(scripted.Text("First"), scripted.Hold(release)))
	for range waiting {
		s.answers(saying("Next."))
	}
	first := s.begin("first")
	first.first("the first words", ofType("chunk"))
	var others []*inbox
	for range waiting + 1 {
		others = append(others, s.begin("next"))
	}
	isBusy := func(e said) bool { return e.Type == "error" && e.Code == "SESSION_BUSY" }
	if s.endpoint == viaSocket {
		s.phone.first("refusal", isBusy)
		close(release)
		for range 1 + waiting {
			if last := s.phone.first("end", said.ended); last.Type != "done" {
				s.Errorf("ended with %+v", last)
			}
		}
	} else {
		eventually(s.TB, waitLimit, "one is refused", func() bool {
			for _, b := range others {
				if b.has(isBusy) {
					return true
				}
			}
			return false
		})
		close(release)
		first.first("end", ofType("done"))
		refused := 0
		for _, b := range others {
			if last := b.first("end", said.ended); isBusy(last) {
				refused++
			}
		}
		if refused != 1 {
			s.Errorf("%d were refused", refused)
		}
	}
	s.looks("u a u a u a u a u a")
}
