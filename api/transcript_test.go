package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

func aTranscript() chat.Transcript {
	at := time.Date(2026, 11, 20, 13, 18, 54, 0, time.FixedZone("", 3600))
	return chat.Transcript{Title: "Where I am", Busy: true, Messages: []provider.Message{
		{Role: provider.RoleUser, Content: "where am I?", At: at, Turn: "t1"},
		{
			Role: provider.RoleAssistant, At: at, Turn: "t1",
			Thinking: []provider.Thought{{Text: "hm", Signature: "secret-sig"}, {Redacted: "secret-blob"},
				{Text: "a tool"}},
			ToolCalls: []provider.ToolCall{
				{ID: "c1", Name: "locate", Args: `{"fast":true}`}, {ID: "c2", Name: "snap", Args: `{"broken`},
				{ID: "c3", Name: "t"},
			},
		},
		{Role: provider.RoleTool, Content: "at home", ToolCallID: "c1", ToolName: "locate", At: at, Turn: "t1",
			Attachments: registry.WithoutData(picture)},
		{Role: provider.RoleTool, Content: "not JSON", ToolCallID: "c2", ToolName: "snap", Failed: true, At: at,
			Turn: "t1", Source: provider.SourceGateway, Suspects: []provider.Suspect{
				{Pointer: "/to", Value: "a@b.example", Source: "outside", Where: "locate"},
			}},
		{Role: provider.RoleAssistant, Content: "You are", Interrupted: true},
	}}
}

const lastWords = `{"role":"assistant","content":"You are","interrupted":true}]}`

// People see all that was said, and nothing of what is between the model and its provider.
func TestTranscript(t *testing.T) {
	f := talking(t, &scripted{transcripts: map[string]chat.Transcript{"s1": aTranscript(), "old": aTranscript()}})
	const head = `,"title":"Where I am","busy":true,"message_count":5,"messages":[`
	const at = `,"at":"2026-11-20T12:18:54.000Z","turn_id":"t1"}`
	golden(t, "transcript", f.get(messagesOfS1).body, `{"session_id":"s1"`+head+
		`{"role":"user","content":"where am I?"`+at+
		`,{"role":"assistant","content":"","thinking":"hm\n\na tool","tool_calls":[`+
		`{"id":"c1","name":"locate","args":{"fast":true}},{"id":"c2","name":"snap","args":"{\"broken"},`+
		`{"id":"c3","name":"t","args":{}}]`+at+
		`,{"role":"tool","content":"at home","tool_call_id":"c1","tool_name":"locate","parts":`+pictureShown+
		`,"tainted":true,"source":"outside"`+at+
		`,{"role":"tool","content":"not JSON","tool_call_id":"c2","tool_name":"snap","failed":true,`+
		`"source":"gateway","suspects":[{"pointer":"/to","value":"a@b.example","source":"outside","where":"locate"}]`+
		at+`,`+lastWords)
	golden(t, "its end", f.get("/api/sessions/old/messages?limit=1").body, `{"session_id":"old"`+head+lastWords)
	for _, limit := range []string{"0", "1001", "x", "1&limit=2"} {
		p := wantProblem(f.get(messagesOfS1+"?limit="+limit), 400, registry.CodeInvalidRequest)
		if !strings.Contains(p.Detail, `"limit"`) {
			t.Errorf("detail %s", p.Detail)
		}
	}
}

func TestTranscriptOfWhom(t *testing.T) {
	a := &scripted{transcripts: map[string]chat.Transcript{"begun": {Busy: true}}}
	f := talking(t, a)
	f.connect(0, session("gone"), echo).gone()
	for id, busy := range map[string]string{"s1": "false", "gone": "false", "begun": "true"} {
		golden(t, id, f.get("/api/sessions/"+id+"/messages").body,
			`{"session_id":"`+id+`","title":"","busy":`+busy+`,"message_count":0,"messages":[]}`)
	}
	for _, id := range []string{"nobody", "a%20b"} {
		wantProblem(f.get("/api/sessions/"+id+"/messages"), 404, registry.CodeSessionNotFound)
	}
	a.failing = errAway
	wantProblem(f.get(messagesOfS1), 503, registry.CodeStoreUnavailable)
}

func TestTranscriptETag(t *testing.T) {
	a := &scripted{transcripts: map[string]chat.Transcript{"s1": aTranscript()}}
	f := talking(t, a)
	tag := f.get(messagesOfS1).header.Get("Etag")
	again := request{path: messagesOfS1, header: http.Header{"If-None-Match": {tag}}}
	if r := f.send(again); tag == "" || r.status != http.StatusNotModified || len(r.body) != 0 {
		t.Errorf("tag %q: status %d", tag, r.status)
	}
	more := aTranscript()
	more.Messages[4].Content += " at home."
	a.transcripts = map[string]chat.Transcript{"s1": more}
	if r := f.send(again); r.status != http.StatusOK || r.header.Get("Etag") == tag {
		t.Errorf("status %d with another content", r.status)
	}
}
