package bus

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// wholeResult has every field that travels.
func wholeResult() *registry.Result {
	return &registry.Result{
		Success: true, Output: "<ok>", Structured: registry.MustJSON(`{"n":12345678901234567890}`), Error: "e",
		Parts: []registry.Part{
			{Type: registry.PartImage, MIMEType: "image/png", Name: "a.png", Data: []byte("\x00\xff"), Size: 2},
			{Type: registry.PartFile, MIMEType: "video/mp4", URI: "file:///x", URL: "https://x", Size: 1 << 40},
		},
		Violations: []registry.Violation{{Pointer: "/a", Message: "must be <b>"}},
		Withheld:   registry.Errorf(registry.CodeInvalidResult, "m"),
	}
}

// TestMessagesSurviveTheTrip sends every field there is: a field that is added must be in the codec.
func TestMessagesSurviveTheTrip(t *testing.T) {
	whole := registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, Tenant: "t", Session: "s", Generation: 1 << 52,
		Exact: true, CallID: "c", Tool: "x", Identity: "user:u", Spec: "h", Attributes: 1 << 63, Attempt: 1,
		Args: registry.MustJSON(`{"a":"<b>&","n":12345678901234567890}`), TimeoutMS: 5, ReplyTo: "p",
		Durable: true, Result: wholeResult(), Err: registry.Lost().With(registry.DispatchedYes),
		Trace: "tr", Order: registry.OrderSession, AgeMS: 3, Approved: true,
	}
	for v, i := reflect.ValueOf(whole), 0; i < v.NumField(); i++ {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() && name != "Reason" && name != "Proofs" { // a call has a trace and an identity instead
			t.Errorf("the test leaves out %s", name)
		}
	}
	for v, i := reflect.ValueOf(*whole.Result), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() && v.Type().Field(i).Name != "Notice" {
			t.Errorf("the test leaves out %s of a result", v.Type().Field(i).Name)
		}
	}
	long := registry.MustJSON(`"` + strings.Repeat("x", keptMessage) + `"`)
	for _, envelope := range []registry.Envelope{
		whole, {V: registry.EnvelopeVersion, Kind: registry.EnvelopeCancel, Reason: "r"},
		{V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, CallID: "c"},
		{V: registry.EnvelopeVersion, Kind: registry.EnvelopeAnswer, Proofs: []string{"p1", "p2"}},
		{V: registry.EnvelopeVersion, Err: registry.Lost()}, {V: registry.EnvelopeVersion},
		{V: registry.EnvelopeVersion, Generation: -1, Result: &registry.Result{}},
		{V: registry.EnvelopeVersion, Args: long, CallID: "c", ReplyTo: "p"},
		{V: registry.EnvelopeVersion, CallID: "c", Order: registry.OrderTool, AgeMS: 7},
		{V: registry.EnvelopeVersion, CallID: "c", Approved: true},
	} {
		text, err := encodeEnvelope(envelope)
		if err != nil {
			t.Fatal(err)
		}
		m, err := decodeMessage(string(text))
		if err != nil || !reflect.DeepEqual(*m.envelope, envelope) {
			t.Errorf("%+v, %v; want %+v", m.envelope, err, envelope)
		}
	}
	failure := registry.ErrNotOwner.With(registry.DispatchedNo)
	failure.RetryAfter, failure.Candidates = time.Second, []registry.Candidate{{SessionID: "s"}}
	for _, r := range []registry.Reply{
		{V: registry.EnvelopeVersion, CallID: "c", Tenant: "t", Session: "s", Result: wholeResult()},
		{V: registry.EnvelopeVersion, CallID: "c", Result: &registry.Result{}},
		{V: registry.EnvelopeVersion, CallID: "c", Delivered: true, Running: true},
		{V: registry.EnvelopeVersion, CallID: "c", Wake: true},
		{V: registry.EnvelopeVersion, CallID: "c", InOrder: true},
		{V: registry.EnvelopeVersion, CallID: "c", Answer: "stored"},
		{V: registry.EnvelopeVersion, CallID: "c", Err: failure},
	} {
		text, err := encodeReply(r)
		if err != nil {
			t.Fatal(err)
		}
		m, err := decodeMessage(string(text))
		if err != nil || !reflect.DeepEqual(*m.reply, r) {
			t.Errorf("%+v, %v; want %+v", m.reply, err, r)
		}
	}
}

func TestVersionIsFilledIn(t *testing.T) {
	text, err := encodeEnvelope(registry.Envelope{CallID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := decodeMessage(string(text)); err != nil || m.envelope.V != registry.EnvelopeVersion {
		t.Errorf("%+v, %v", m.envelope, err)
	}
}

func TestBadMessages(t *testing.T) {
	envelope := func(e registry.Envelope) string { return string(mustEncode(t)(encodeEnvelope(e))) }
	reply := func(r registry.Reply) string { return string(mustEncode(t)(encodeReply(r))) }
	call := envelope(registry.Envelope{CallID: "c", ReplyTo: "p", Args: registry.MustJSON(`{}`)})
	notice := envelope(registry.Envelope{Kind: registry.EnvelopeEvict})
	result := reply(registry.Reply{CallID: "c", Result: &registry.Result{Structured: registry.MustJSON(`{}`)}})
	for text, wantRefusal := range map[string]bool{
		"":                                   false,
		"X{}":                                false,
		"E":                                  false,
		"E\x02\x00\x01c\x01p":                true, // another version, and the pod that waits for a reply
		"E\x02\x00\x01c\x01p and other news": true,
		"E\x02\x00\x00\x00":                  false,
		call[:len(call)-1]:                   true,
		call[:9]:                             true,
		call[:5]:                             false,
		call + "x":                           true,
		strings.Replace(call, "{}", "{]", 1): true,
		notice + "x":                         false,
		"E\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": false,
		"R":                                    false,
		"R\x02\x00\x01c":                       false,
		result[:len(result)-1]:                 false,
		result + "x":                           false,
		strings.Replace(result, "{}", "{]", 1): false,
		reply(registry.Reply{Delivered: true}): false, // no call id
		reply(registry.Reply{CallID: "c"}):     false,
		reply(registry.Reply{CallID: "c", Delivered: true, Wake: true}):                              false,
		strings.TrimSuffix(reply(registry.Reply{CallID: "c", Err: registry.ErrNotOwner}), "}") + "]": false,
	} {
		m, err := decodeMessage(text)
		var bad *badMessage
		if !errors.As(err, &bad) {
			t.Errorf("%s: %+v, %v", text, m, err)
			continue
		}
		r := bad.refusal()
		if (r != nil) != wantRefusal {
			t.Errorf("%s: refusal %+v, want one: %v", text, r, wantRefusal)
		}
		if r != nil && (r.CallID != "c" || !errors.Is(r.Err, registry.CodeInvalidRequest) ||
			r.Err.Dispatched != registry.DispatchedNo) {
			t.Errorf("%s: refusal %+v", text, r)
		}
	}
}

func mustEncode(t *testing.T) func([]byte, error) []byte {
	return func(text []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

func FuzzBusMessage(f *testing.F) {
	for _, seed := range []string{
		"", "P", "E\x01\x01\x01c\x01p\x04call\x01t\x01s\x04tool\x00\x02\xd0\x0f\x00\x02{}", "E\x02\x00\x01c\x01p",
		"E\x01\x04\x01c\x01p\x06answer\x01t\x01s\x00\x00\x02\x02\x02\x01x\x01y\x00\x01\x03out\x00",
		"R\x01\x08\x01c\x01t\x01s\x00\x03\x03out\x00\x02[]", "R\x01\x01\x01c\x00\x00\x00",
		"R\x01\x10\x01c\x00\x00\x00\x1d" + `{"code":"busy","message":"m"}`,
		"R\x02\x08\x01c\x01t\x01s\x00\x09\x03out\x00\x01\x05image\x09image/png\x01n\x00\x02\x00\xff\x04",
		"R\x02\x08\x01c\x01t\x01s\x00\x09\x03out\x00\xff\xff\x01",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := decodeMessage(text)
		if err != nil {
			var bad *badMessage
			if !errors.As(err, &bad) {
				t.Fatalf("error of another type: %v", err)
			}
			if r := bad.refusal(); r != nil {
				if _, err := encodeReply(*r); err != nil {
					t.Fatalf("refusal cannot be sent: %v", err)
				}
			}
			return
		}
		// What was accepted can be sent on, and is then accepted again, unchanged.
		var again []byte
		switch {
		case m.probe:
			return
		case m.envelope != nil:
			again, err = encodeEnvelope(*m.envelope)
		case m.reply != nil:
			again, err = encodeReply(*m.reply)
		default:
			t.Fatal("neither an error nor a message")
		}
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		second, err := decodeMessage(string(again))
		if err != nil {
			t.Fatalf("decode again: %v", err)
		}
		var third []byte
		if second.envelope != nil {
			third, err = encodeEnvelope(*second.envelope)
		} else {
			third, err = encodeReply(*second.reply)
		}
		if err != nil || string(third) != string(again) {
			t.Fatalf("not stable: %q, then %q, %v", again, third, err)
		}
	})
}
