package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func plainText(s *scene) {
	s.answers(saying("Hel", "lo ", "you."), saying("Still here."))
	events := s.good("hello")
	if chunks := only(events, "chunk"); len(chunks) != 3 || textOf(events) != "Hello you." {
		s.Errorf("chunks %+v", chunks)
	}
	title := tag(s.name) + " hello"
	titles := only(events, "title_updated")
	if s.endpoint != viaHTTP && len(titles) == 0 { // on the socket it follows done
		titles = append(titles, s.phone.inbox.first("title", ofType("title_updated")))
	}
	if len(titles) != 1 || titles[0].Title != title {
		s.Errorf("titles %+v", titles)
	}
	first := s.asked(0)
	if !strings.HasPrefix(first.System, "You are a helpful assistant.") || !offered(first, "echo") ||
		!offered(first, "time") {
		s.Errorf("the model was asked %s", first.Raw)
	}
	if titles := only(s.good("and now?"), "title_updated"); len(titles) != 0 {
		s.Errorf("a second title: %+v", titles)
	}
	if tr := s.looks("u a u a"); tr.Title != title || tr.Messages[1].Content != "Hello you." ||
		tr.Messages[2].Content != tag(s.name)+" and now?" {
		s.Errorf("the transcript: %s", tr.raw)
	}
}

// The thought goes back to the model that had it. The scripted Anthropic server refuses one whose signature is wrong.
func thinking(s *scene) {
	s.answers(
		scripted.Reply(scripted.Thinking("Let ", "me see."), scripted.Text("I look. "),
			scripted.Calls(echoing(`{"n":1}`))),
		scripted.Reply(scripted.Thinking("So."), scripted.Text("Yes.")), saying("As I said."),
	)
	events := s.good("think")
	var thoughts []string
	for _, e := range only(events, "thinking") {
		thoughts = append(thoughts, e.Content)
	}
	if strings.Join(thoughts, "|") != "Let |me see.|So." || textOf(events) != "I look. Yes." {
		s.Errorf("thought %q, said %q", thoughts, textOf(events))
	}
	if !bytes.Contains(s.asked(1).Raw, []byte("Let me see.")) {
		s.Errorf("the model was asked %s", s.asked(1).Raw)
	}
	s.good("again")
	if tr := s.looks("u a1 t a u a"); tr.Messages[1].Thinking != "Let me see." || tr.Messages[3].Thinking != "So." {
		s.Errorf("the transcript: %s", tr.raw)
	}
}

func oneCall(s *scene) {
	s.answers(calling(echoing(`{"nonce":"n-17"}`)), saying("It said n-17."))
	events := s.good("call it")
	calls, results := only(events, "tool_call"), only(events, "tool_result")
	if len(calls) != 1 || calls[0].Name != "echo" || string(calls[0].Args) != `{"nonce":"n-17"}` ||
		calls[0].Status != "executing" {
		s.Fatalf("calls %+v", calls)
	}
	if len(results) != 1 || results[0].ID != calls[0].ID || results[0].Status != "completed" ||
		!strings.Contains(results[0].Output, `{"nonce":"n-17"}`) {
		s.Fatalf("results %+v", results)
	}
	eventually(s.TB, waitLimit, "the call is on record", func() bool { // written in the background
		status, raw := request(s.TB, http.MethodGet, s.reader+"/api/calls/"+calls[0].ID, "")
		return status == http.StatusOK && strings.Contains(string(raw), `"status":"completed"`)
	})
	heard := s.asked(1).Messages
	if last := heard[len(heard)-1]; last.Role != provider.RoleTool ||
		!strings.HasPrefix(last.Content, "<tool_output") || !strings.Contains(last.Content, `{"nonce":"n-17"}`) {
		s.Errorf("the model read %+v", last)
	}
	s.looks("u a1 t a")
}

// The device answers none before it has all three, and then the last one first.
func parallelCalls(s *scene) {
	var mu sync.Mutex
	var waiting []chan struct{}
	s.moveIn(func(_ *phone, call said) (string, bool) {
		turn := make(chan struct{})
		mu.Lock()
		waiting = append(waiting, turn)
		if len(waiting) == 3 {
			close(waiting[2])
		}
		mu.Unlock()
		<-turn
		mu.Lock()
		defer mu.Unlock()
		if i := slices.Index(waiting, turn); i > 0 {
			close(waiting[i-1])
		}
		return string(call.Args), true
	})
	s.answers(calling(echoing(`{"n":"one"}`), echoing(`{"n":"two"}`), echoing(`{"n":"three"}`)), saying("All."))
	events := s.good("three at once")
	if n := len(only(events, "tool_result")); n != 3 {
		s.Errorf("%d results", n)
	}
	heard := s.asked(1).Messages
	results := heard[len(heard)-3:]
	for i, want := range []string{"one", "two", "three"} {
		if calls := heard[len(heard)-4].ToolCalls; results[i].ToolCallID != calls[i].ID ||
			!strings.Contains(results[i].Content, want) {
			s.Errorf("result %d: %+v of %+v", i, results[i], calls[i])
		}
	}
	s.looks("u a3 t t t a")
}

// moveIn gives the session's device another way of working.
func (s *scene) moveIn(work func(*phone, said) (string, bool)) {
	s.Helper()
	s.phone.disconnect()
	s.phone = connectPhone(s.TB, s.device, s.name, work)
}

func severalIterations(s *scene) {
	step := func(text, args string) scripted.Step {
		return scripted.Reply(scripted.Text(text), scripted.Calls(echoing(args)))
	}
	s.answers(step("First. ", `{"n":1}`), step("Second. ", `{"n":2}`), step("Third. ", `{"n":3}`), saying("Done."))
	if text := textOf(s.good("go on")); text != "First. Second. Third. Done." {
		s.Errorf("said %q", text)
	}
	if tr := s.looks("u a1 t a1 t a1 t a"); tr.Messages[5].Content != "Third. " ||
		!strings.Contains(tr.Messages[6].Content, `{"n":3}`) {
		s.Errorf("the transcript: %s", tr.raw)
	}
}

func malformedArguments(s *scene) {
	s.answers(calling(echoing(`{"n": oops`)), calling(echoing(`{"n":"right"}`)), saying("Good."))
	events := s.good("write badly")
	results := only(events, "tool_result")
	if len(results) != 2 || results[0].Status != "failed" ||
		!strings.Contains(results[0].Output, "not a JSON object") || results[1].Status != "completed" {
		s.Fatalf("results %+v", results)
	}
	if n := len(only(s.phone.all(), "tool_call_request")); n != 1 {
		s.Errorf("the device was called %d times", n)
	}
	if call := only(events, "tool_call")[0]; !strings.Contains(string(call.Args), "oops") {
		s.Errorf("people see the call as %s", call.Args)
	}
	s.looks("u a1 t! a1 t a")
}

func unknownTool(s *scene) {
	s.answers(calling(scripted.Call{Name: "no-such-tool", Args: `{}`}), calling(echoing(`{"n":1}`)),
		saying("Found it."))
	results := only(s.good("guess"), "tool_result")
	if len(results) != 2 || results[0].Status != "failed" || !strings.Contains(results[0].Output, "echo, other") {
		s.Fatalf("results %+v", results)
	}
	s.looks("u a1 t! a1 t a")
}

func failingTool(s *scene) {
	s.moveIn(func(p *phone, call said) (string, bool) {
		p.send(map[string]any{"type": "tool_error", "id": call.ID, "error": "the camera is covered", "success": false})
		return "", false
	})
	s.answers(calling(echoing(`{}`)), saying("It is covered."))
	results := only(s.good("look"), "tool_result")
	if len(results) != 1 || results[0].Status != "failed" ||
		!strings.Contains(results[0].Output, "the camera is covered") {
		s.Errorf("results %+v", results)
	}
	s.looks("u a1 t! a")
}

// What is said is heard at once, not when the answer is whole.
func slowTokens(s *scene) {
	second, third := make(chan struct{}), make(chan struct{})
	s.answers(scripted.Reply(scripted.Text("one "), scripted.Hold(second), scripted.Text("two "), scripted.Hold(third),
		scripted.Text("three")))
	events := s.begin("slowly")
	if e := events.first("the first token", ofType("chunk")); e.Content != "one " {
		s.Errorf("heard %+v", e)
	}
	close(second)
	if e := events.first("the second token", ofType("chunk")); e.Content != "two " {
		s.Errorf("heard %+v", e)
	}
	if tr := readTranscript(s.TB, s.reader, s.name); !tr.Busy {
		s.Errorf("busy is not told: %s", tr.raw)
	}
	close(third)
	if last := events.first("end", said.ended); last.FullResponse != "one two three" {
		s.Errorf("heard %+v", last)
	}
	s.looks("u a")
}

// A tool that goes is gone, and one that comes is there, at the next request of the same turn.
func toolsChange(s *scene) {
	s.moveIn(func(p *phone, call said) (string, bool) {
		if !strings.Contains(string(call.Args), "change") {
			return string(call.Args), true
		}
		p.send(map[string]any{"type": "unregister_tools", "names": []string{"other"}})
		p.register("late")
		return "changed", p.holds(func(all []said) bool { return len(only(all, "tools_registered")) == 3 })
	})
	s.answers(
		calling(echoing(`{"do":"change"}`)),
		calling(scripted.Call{Name: "late", Args: `{"n":2}`}, scripted.Call{Name: "other", Args: `{"n":3}`}),
		saying("So it is."),
	)
	results := only(s.good("change"), "tool_result")
	if before, after := s.asked(0), s.play.asked(1); !offered(before, "other") || offered(before, "late") ||
		offered(after, "other") || !offered(after, "late") {
		s.Errorf("tools before: %+v, after: %+v", before.Tools, after.Tools)
	}
	if len(results) != 3 {
		s.Fatalf("results %+v", results)
	}
	for _, r := range results {
		if failed := r.Status == "failed"; failed != (r.Name == "other") {
			s.Errorf("%+v", r)
		}
	}
	s.looks("u a1 t a2 t t! a")
}

func regenerate(s *scene) {
	s.answers(calling(echoing(`{"n":1}`)), saying("One."), saying("Two."))
	s.good("say a number")
	s.goodEnd(rest(s.beginWith(map[string]any{"regenerate": true})))
	heard := s.asked(2).Messages
	if len(heard) != 1 || heard[0].Role != provider.RoleUser || !strings.HasSuffix(heard[0].Content, "say a number") {
		s.Errorf("the model was asked %+v", heard)
	}
	if tr := s.looks("u a"); tr.Messages[1].Content != "Two." {
		s.Errorf("the transcript: %s", tr.raw)
	}
}

func nothingToRegenerate(s *scene) {
	events := rest(s.beginWith(map[string]any{"regenerate": true}))
	if last := events[len(events)-1]; last.Type != "error" || last.Code != "NO_USER_MESSAGE" {
		s.Errorf("ended with %+v", last)
	}
	s.answers(saying("Now."))
	s.good("say something")
	s.looks("u a")
}

func debugPrompt(s *scene) {
	s.answers(calling(echoing(`{"n":1}`)), saying("One."))
	prompts := only(s.goodEnd(rest(s.beginWith(map[string]any{"content": tag(s.name) + " show me", "debug": true}))),
		"debug_prompt")
	if len(prompts) != 2 {
		s.Fatalf("%d prompts", len(prompts))
	}
	for i, n := range []int{2, 4} {
		text := prompts[i].Messages
		if s.endpoint == viaSocket { // a text with JSON in it, as ClawSeed's clients expect
			var inner string
			if err := json.Unmarshal(text, &inner); err != nil {
				s.Fatalf("%s: %v", text, err)
			}
			text = json.RawMessage(inner)
		}
		var messages []provider.Message
		if err := json.Unmarshal(text, &messages); err != nil || len(messages) != n ||
			messages[0].Role != provider.RoleSystem || prompts[i].Tokens <= 0 {
			s.Errorf("prompt %d: %v %s, %d tokens", i, err, text, prompts[i].Tokens)
		}
	}
	s.looks("u a1 t a")
}

// A device that reconnects, to any pod, continues its conversation.
func reconnectElsewhere(s *scene) {
	s.answers(calling(echoing(`{"nonce":"n-23"}`)), saying("It is n-23."), calling(echoing(`{"nonce":"n-42"}`)),
		saying("As before."))
	s.good("what is it?")
	s.phone.disconnect()
	s.device = s.reader
	s.phone = connectPhone(s.TB, s.device, s.name, nil)
	if o := s.phone.opening; !o.Resumed || o.MessageCount != 4 {
		s.Errorf("the session begins with %+v", o)
	}
	s.good("and now?")
	heard := s.asked(2).Messages
	var roles []string
	for _, m := range heard {
		roles = append(roles, string(m.Role))
	}
	if strings.Join(roles, " ") != "user assistant tool assistant user" ||
		!strings.Contains(heard[2].Content, "n-23") || heard[3].Content != "It is n-23." {
		s.Errorf("the model was asked %+v", heard)
	}
	s.looks("u a1 t a u a1 t a")
}

// The other endpoint beside the conversation: its turns use the same device, and leave the conversation alone.
func completionsBeside(s *scene) {
	s.answers(saying("Hello."), calling(echoing(`{"nonce":"n-99"}`)), saying("It is n-99."))
	s.good("hello")
	body := `{"model":"m","messages":[{"role":"user","content":"` + tag(s.name) + ` call it"}]}`
	req, err := http.NewRequest(http.MethodPost, s.reader+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Farhand-Session", s.name)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Choices) != 1 ||
		answer.Choices[0].Message.Content != "It is n-99." {
		s.Errorf("%d %v %+v", resp.StatusCode, err, answer)
	}
	if heard := s.asked(2).Messages; len(heard) != 3 || !strings.Contains(heard[2].Content, "n-99") {
		s.Errorf("the model was asked %+v", heard)
	}
	s.looks("u a")
}
