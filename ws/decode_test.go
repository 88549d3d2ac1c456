package ws

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/ws/internal/fields"
)

// FuzzDeviceFrame: no input makes the decoder panic; what it accepts re-encodes to a fixed point and means the same
// to a second decoder. The seeds are the frames of the protocol and every bad frame of the tests.
func FuzzDeviceFrame(f *testing.F) {
	for _, seed := range goodFrames() {
		f.Add([]byte(seed))
	}
	for _, bad := range BadFrames() {
		if len(bad.Frame) < 4096 { // mutating the huge ones teaches nothing and takes all the time
			f.Add([]byte(bad.Frame))
		}
	}
	f.Add([]byte("{\"type\":\"message\",\"content\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := decodeFrame(data)
		if err != nil {
			return
		}
		checkTools(t, frame)
		once := encode(frame)
		again, err := decodeFrame(once)
		if err != nil {
			t.Fatalf("%q re-encoded to %q, which is refused: %v", data, once, err)
		}
		if twice := encode(again); !bytes.Equal(once, twice) {
			t.Fatalf("%q re-encoded to %q, then to %q", data, once, twice)
		}
		// encoding/json folds case; on what we accept it must still agree, field by field.
		std := reflect.New(reflect.TypeOf(frame).Elem()).Interface()
		if err := json.Unmarshal(once, std); err != nil || !bytes.Equal(encode(std), once) {
			t.Fatalf("%q means something else to encoding/json: %v", once, err)
		}
	})
}

func checkTools(t *testing.T, frame any) {
	if f, ok := frame.(*registerToolsFrame); ok {
		for _, tool := range f.Tools {
			if _, err := decodeTool(tool); err != nil && strings.TrimSpace(err.Error()) == "" {
				t.Fatal("a rejection without a reason")
			}
		}
	}
}

func goodFrames() []string {
	return []string{
		`{"type":"connect","v":1,"session_id":"s","device_name":"d","capabilities":["ack"],"device_id":"i",` +
			`"platform":"p","labels":{"a":"b","A":"c"}}`,
		`{"type":"connect"}`,
		`{"type":"register_tools","tools":[{"name":"a","description":"d","parameters":{"type":"object"},` +
			`"timeout_ms":5,"annotations":{"readOnlyHint":true,"openWorldHint":true},"security_level":"safe"},7,null]}`,
		`{"type":"unregister_tools","names":["a","\u0062"]}`,
		`{"type":"get_registered_tools"}`,
		`{"type":"tool_call_accepted","id":"1"}`,
		`{"type":"tool_progress","id":"1","progress":0.4,"total":1,"message":"m","chunk":[1e999]}`,
		`{"type":"tool_result","id":"1","output":{"n":12345678901234567890},"success":true,"error":null}`,
		`{"type":"tool_result","id":"1","output":"\ud800<>"}`,
		`{"type":"tool_result","id":"1","output":["\ud83d\ude00\uDC00",1.50]}`,
		`{"type":"tool_result","id":"1","parts":[{"type":"image","mime_type":"image/png","data":"AAECAw==","size":4,` +
			`"name":"Küche.png","other":1},{"type":"file","mime_type":"a/b","data":"A\u0041==","name":null}]}`,
		`{"type":"tool_result","id":"1","parts":null}`, `{"type":"tool_result","id":"1","parts":[]}`,
		`{"type":"tool_result","id":"1","parts":[{"type":"file","mime_type":"a/b","url":"/uploads/` +
			strings.Repeat("A", 43) + `","size":7}]}`,
		`{"type":"upload_request","id":"1","mime_type":"video/mp4","size":12345678,"name":"clip.mp4"}`,
		`{"type":"register_wake","wake":{"kind":"webhook","url":"https://example.com/"}}`, `{"type":"register_wake","wake":null}`,
		`{"type":"tool_error","id":"1","error":"e","success":false}`,
		`{"type":"message","content":"hi","debug":true}`,
		`{"type":"abort"}`, ` { "type" : "regenerate" , "x":[{"y":"]}\""}] } `,
	}
}

func TestGoodFramesDecode(t *testing.T) {
	for _, text := range goodFrames() {
		if _, err := decodeFrame([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAllHintsAreKept(t *testing.T) {
	const hints = `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`
	tool, err := decodeTool([]byte(`{"name":"a","annotations":` + hints + `}`))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := json.Marshal(tool.Spec.Annotations)
	if err != nil || string(kept) != hints {
		t.Fatalf("kept %s, %v", kept, err)
	}
}

func TestNumbersAreNotRounded(t *testing.T) {
	const output = `{"a":12345678901234567890,"b":1e999,"c":0.10,"d":-0}`
	frame, err := decodeFrame([]byte(`{"type":"tool_result","id":"1","output":` + output + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := frame.(*toolResultFrame).Output.String(); got != output {
		t.Fatalf("output became %s", got)
	}
}

func TestDepthLimit(t *testing.T) {
	nested := func(n int) []byte { // n levels below the frame's own
		return []byte(`{"type":"abort","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	if _, err := decodeFrame(nested(fields.MaxDepth - 1)); err != nil {
		t.Errorf("the deepest allowed: %v", err)
	}
	if _, err := decodeFrame(nested(fields.MaxDepth)); err == nil {
		t.Error("one deeper was accepted")
	}
}

func BenchmarkDecodeResult(b *testing.B) {
	frame := []byte(`{"type":"tool_result","id":"550e8400-e29b-41d4-a716-446655440000",` +
		`"output":"{\"model\":\"Pixel 8\"}","success":true}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeFrame(frame); err != nil {
			b.Fatal(err)
		}
	}
}
