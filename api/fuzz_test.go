package api

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// plainCall is the body of a call as encoding/json, with its own ideas of strictness, would read it.
type plainCall struct {
	Args   json.RawMessage `json:"args,omitempty"`
	Target *struct {
		SessionID string            `json:"session_id,omitempty"`
		DeviceID  string            `json:"device_id,omitempty"`
		UserID    string            `json:"user_id,omitempty"`
		Labels    map[string]string `json:"labels,omitempty"`
	} `json:"target,omitempty"`
	TimeoutMS json.Number `json:"timeout_ms,omitempty"`
	Mode      string      `json:"mode,omitempty"`
	Key       string      `json:"idempotency_key,omitempty"`
	Select    string      `json:"select,omitempty"`
}

// FuzzCallBody: whatever arrives, nothing panics, every refusal is a coded error, and what is accepted means the same
// to encoding/json and survives being written out and read again.
func FuzzCallBody(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", `{} {}`, `{"args":{}}`, `{"Args":{}}`, `{"args":{},"args":{}}`, `{"args":[]}`,
		`{"args":null}`,
		`{"args":{"a":{"a":1,"a":2}}}`, `{"args":{"n":1e999,"m":12345678901234567890123}}`, `{"args":{"s":"\ud800"}}`,
		`{"target":{"session_id":"s"},"timeout_ms":30000,"select":"newest","mode":"sync"}`, `{"target":{"x":1}}`,
		`{"target":{}}`,
		`{"target":{"labels":{"a":"b","A":"","\u0000":"c"}}}`, `{"target":{"labels":null}}`, `{"target":null}`,
		`{"timeout_ms":0}`, `{"timeout_ms":1e3}`, `{"timeout_ms":99999999999999999999}`, `{"timeout_ms":-0}`,
		`{"timeout_ms":"1"}`,
		`{"mode":"async"}`, `{"idempotency_key":"k"}`, `{"select":""}`, "\xff", "\ufeff{}", "{\"args\":{\"\xc0\":1}}",
		strings.Repeat("[", 70), strings.Repeat(`{"args":`, 70), `{"args":{"\"[":"{{{{"}}`, "{\"a\x00\":1}", `{'a':1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseCall(body)
		if err != nil {
			if code := registry.AsError(err).Code; code != registry.CodeInvalidRequest {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		var plain plainCall
		if len(bytes.TrimSpace(body)) > 0 {
			if err := json.Unmarshal(body, &plain); err != nil {
				t.Fatalf("accepted, but encoding/json says %v", err)
			}
		}
		if !bytes.Equal(got.args.Raw(), plain.Args) || string(got.sel) != plain.Select ||
			got.targeted != (plain.Target != nil) ||
			got.key != plain.Key || got.async != (plain.Mode == "async") {
			t.Fatalf("read as %+v, encoding/json reads %+v", got, plain)
		}
		if p := plain.Target; p != nil && (got.target.SessionID != p.SessionID || got.target.DeviceID != p.DeviceID ||
			got.target.UserID != p.UserID || len(got.target.Labels) != len(p.Labels)) {
			t.Fatalf("target read as %+v, encoding/json reads %+v", got.target, p)
		}
		if got.timeout < 0 || got.timeout%time.Millisecond != 0 {
			t.Fatalf("timeout %v", got.timeout)
		}
		again, err := json.Marshal(plain)
		if err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		reread, err := parseCall(again)
		if err != nil {
			t.Fatalf("accepted, written as %s, then refused: %v", again, err)
		}
		if reread.timeout != got.timeout || reread.sel != got.sel || reread.key != got.key ||
			reread.async != got.async || !sameTarget(reread.target, got.target) ||
			!sameJSON(reread.args.Raw(), got.args.Raw()) {
			t.Fatalf("read as %+v, then as %+v", got, reread)
		}
	})
}

func sameTarget(a, b registry.Target) bool {
	return a.SessionID == b.SessionID && a.DeviceID == b.DeviceID && a.UserID == b.UserID &&
		(len(a.Labels) == 0 && len(b.Labels) == 0 || reflect.DeepEqual(a.Labels, b.Labels))
}

func sameJSON(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	read := func(text []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		_ = dec.Decode(&v)
		return v
	}
	return reflect.DeepEqual(read(a), read(b))
}

// FuzzCursor: a word from outside either is exactly what String wrote, or is refused.
func FuzzCursor(f *testing.F) {
	f.Add("", "t")
	f.Add("e30", "s")
	f.Add(cursor{Kind: cursorTools, Generation: 7, Session: "s1", Name: "t"}.String(), "t")
	f.Add(cursor{Kind: cursorGroups, Name: "a\x00b"}.String(), "g")
	f.Fuzz(func(t *testing.T, word, kind string) {
		if c, ok := parseCursor(word, cursorKind(kind)); ok && (c.String() != word || string(c.Kind) != kind) {
			t.Fatalf("%q was read as %+v", word, c)
		}
	})
}

// FuzzQuery: a query string is read or refused, and nothing unknown gets through.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=1", "label=a=b&label=c=d", "limit=0", "x=1", "limit=1&limit=2",
		"label=a", "%zz", "a;b", "q="} {
		f.Add(seed)
	}
	known := []string{"q", "label", "limit", "session_id", "cursor"}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw, known)
		if err != nil {
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil || values.Encode() != q.encoded() {
			t.Fatalf("%q was read as %v", raw, q)
		}
		if n := q.limit(); q.failed() == nil && (n < 1 || n > maxLimit) {
			t.Fatalf("limit %d", n)
		}
		q.target()
	})
}

// FuzzDecision: whatever arrives as a decision, every refusal is a coded error, nothing is allowed but by one of the
// two words for it, and a grant lasts no longer than it may.
func FuzzDecision(f *testing.F) {
	for _, seed := range []string{
		`{"decision":"allow-once"}`, `{"decision":"deny"}`,
		`{"decision":"allow-always","scope":"tool","expires_in_ms":60000}`,
		`{"decision":"allow-always","scope":"arguments"}`, `{"decision":"deny","decision":"allow-once"}`,
		`{"decision":null}`, `{"Decision":"allow-once"}`, `{"decision":"allow-once","expires_in_ms":1e3}`,
		`[]`, ``, `{"decision":"allow\u002donce"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := parseDecision(body)
		if err != nil {
			if code := registry.AsError(err).Code; code != registry.CodeInvalidRequest {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		var plain struct{ Decision string }
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("accepted, but encoding/json says %v", err)
		}
		always := plain.Decision == wire.DecisionAlways
		if d.Allow != (always || plain.Decision == wire.DecisionOnce) || (d.Scope != "") != always ||
			d.GrantLife < 0 || d.GrantLife > registry.MaxGrantLife || d.GrantLife > 0 && !always {
			t.Fatalf("%q was read as %+v", body, d)
		}
	})
}
