package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// picture is what camera answers with. Its JSON is pictureJSON.
var picture = []registry.Part{
	{Type: registry.PartImage, MIMEType: "image/png", Name: "a<b>.png", Data: []byte("\x89PNG"), Size: 4},
	{Type: registry.PartFile, MIMEType: "video/mp4", URL: "https://x/1?a=1&b=2", Size: 1 << 40},
	{Type: registry.PartAudio, MIMEType: "audio/ogg", Size: 9},
}

const pictureJSON = `[{"type":"image","mime_type":"image/png","name":"a<b>.png","data":"iVBORw==","size":4},` +
	`{"type":"file","mime_type":"video/mp4","url":"https://x/1?a=1&b=2","size":1099511627776},` +
	`{"type":"audio","mime_type":"audio/ogg","size":9}]`

// pictureShown is the JSON of picture without data.
const pictureShown = `[{"type":"image","mime_type":"image/png","name":"a<b>.png","size":4},` +
	`{"type":"file","mime_type":"video/mp4","url":"https://x/1?a=1&b=2","size":1099511627776},` +
	`{"type":"audio","mime_type":"audio/ogg","size":9}]`

func camera(routing.DeviceCall) (registry.Result, bool) {
	return registry.Result{Success: true, Output: "click", Parts: picture}, true
}

// withParts is an answer or a record, as far as it matters here.
type withParts struct {
	CallID string `json:"call_id"`
	Output string
	Parts  json.RawMessage
}

// Images reach the caller as parts, also of a repeated request and of a record; never as text, and never in lists.
func TestPartsInAnswers(t *testing.T) {
	onEachStore(t, setup{}, func(f *fleet) {
		f.connect(1, session("s1"), camera, tools("camera")...)
		check := func(what string, r reply) withParts {
			f.Helper()
			a := decode[withParts](r, 200)
			if a.Output != "click" || string(a.Parts) != pictureJSON {
				f.Errorf("%s: %s", what, r.body)
			}
			return a
		}
		var id string
		for pod := range 2 {
			check("a plain call", f.send(request{method: http.MethodPost, path: "/api/tools/camera/call", pod: pod}))
			id = check("a keyed call", f.send(request{method: http.MethodPost, path: "/api/tools/camera/call",
				pod: pod, header: http.Header{"Idempotency-Key": {"k"}}})).CallID
		}
		check("the record", f.get("/api/calls/"+id))
		r := f.get("/api/calls")
		if bytes.Contains(r.body, []byte("iVBORw")) || bytes.Contains(r.body, []byte("parts")) {
			f.Errorf("the list has parts: %s", r.body)
		}
	})
}

// withholder lets nobody read what the tool returned.
type withholder struct{}

func (withholder) Name() string { return "withholder" }

func (withholder) Amend(
	context.Context, agent.Invocation, agent.Outcome, error,
) (registry.Result, error) {
	return registry.Result{}, registry.Errorf(registry.CodePolicyDenied, "Not for you.")
}

// A result that a hook withholds is withheld with its parts, in answers, replays and records.
func TestWithheldParts(t *testing.T) {
	onEachStore(t, setup{hooks: []agent.Hook{withholder{}}}, func(f *fleet) {
		f.connect(1, session("s1"), camera, tools("camera")...)
		for range 2 {
			r := f.send(request{method: http.MethodPost, path: "/api/tools/camera/call",
				header: http.Header{"Idempotency-Key": {"k"}}})
			record := f.get("/api/calls/" + r.header.Get("X-Farhand-Call-Id"))
			for what, body := range map[string][]byte{"answer": r.body, "record": record.body} {
				if !bytes.Contains(body, []byte("Not for you")) || bytes.Contains(body, []byte("parts")) ||
					bytes.Contains(body, []byte("iVBORw")) {
					f.Errorf("%s: %s", what, body)
				}
			}
		}
	})
}
