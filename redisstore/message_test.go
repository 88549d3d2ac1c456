package redisstore

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestMessagesSurviveTheTrip(t *testing.T) {
	envelope := registry.Envelope{
		V: 1, Kind: registry.EnvelopeCall, Tenant: "t", Session: "s", Generation: 1 << 52, CallID: "c", Tool: "x",
		Args: json.RawMessage(`{"a":"<b>&","n":12345678901234567890}`), TimeoutMS: 5, ReplyTo: "p",
	}
	text, err := encodeEnvelope(envelope)
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMessage(string(text))
	if err != nil || !reflect.DeepEqual(*m.envelope, envelope) {
		t.Errorf("%+v, %v", m.envelope, err)
	}
	for _, r := range []registry.Reply{
		{V: 1, CallID: "c", Result: &registry.Result{Success: true, Output: "<ok>"}},
		{V: 1, CallID: "c", Delivered: true},
		{V: 1, CallID: "c", Err: registry.ErrNotOwner.With(registry.DispatchedNo)},
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
	for text, wantRefusal := range map[string]bool{
		"":                    false,
		"X{}":                 false,
		"E":                   false,
		"C":                   false,
		"C\x02\x00\x01c\x01p": true, // another version, with who is to be told
		"C\x01\x00\x01c\x01p": true, // cut short
		"C\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": false,
		"A":                                    false,
		"A\x02\x00\x01c":                       false,
		"A\x01\x00\x00\x00\x00\x00\x00\x00":    false, // no call id
		"Enonsense":                            false,
		`E{"v":2}`:                             false,
		`E["a"]`:                               false,
		`R{}`:                                  false,
		`Rnull`:                                false,
		`R{"v":1,"call":"c"}`:                  false,
		`R{"v":2,"call":"c","delivered":true}`: false,
		`R{"v":1,"call":"c","delivered":true,"err":{"code":"x"}}`:   false,
		`E{"v":2,"call":"c","reply_to":"p"}`:                        true,
		`E{"v":1,"call":"c","reply_to":"p","timeout_ms":"soon"}`:    true,
		`E{"v":1,"call":"c","reply_to":"p","gen":1e99}`:             true,
		`E{"v":1,"call":["c"],"reply_to":"p"}`:                      false,
		`E{"v":"one","call":"c","reply_to":"p","unknown":{"a":[]}}`: true,
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
		if r != nil && (r.CallID != "c" || !errors.Is(r.Err, registry.CodeInvalidRequest) || r.Err.Dispatched != registry.DispatchedNo) {
			t.Errorf("%s: refusal %+v", text, r)
		}
	}
}

func FuzzBusMessage(f *testing.F) {
	for _, seed := range []string{
		"", "P", "C\x01\x01\x01c\x01p\x01t\x01s\x04tool\x02\xd0\x0f\x02{}", "A\x01\x03\x01c\x01t\x01s\x03out\x00\x02[]", "E{}", "R{}", `E{"v":1,"kind":"call","call":"c","reply_to":"p","args":{"a":[1,2]}}`,
		`R{"v":1,"call":"c","result":{"success":true,"output":"x","structured":[1]}}`, `R{"v":1,"call":"c","delivered":true}`,
		`R{"v":1,"call":"c","err":{"code":"busy","message":"m","retry_after":1}}`, `E{"v":2,"call":"c","reply_to":"p"}`,
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
