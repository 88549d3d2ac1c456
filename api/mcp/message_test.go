package mcp

import (
	"encoding/json"
	"errors"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzMessage: what is taken for a message is one to encoding/json too, and what is refused is refused as JSON-RPC
// says.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":[1]},"_meta":{"x":1}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`[{"jsonrpc":"2.0"}]`, `{"jsonrpc":"2.0","id":null,"method":"x"}`,
		`{"jsonrpc":"2.0","id":-0,"method":"\u0000"}`,
		`{"jsonrpc":"2.0","id":1e3,"method":"x"}`, ` {} `, `{"jsonrpc":"2.0","id":1,"method":"x","params":null}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseMessage(body)
		var refused *rpcError
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("%q: %v is no error of JSON-RPC", body, err)
		}
		if answer := appendError(nil, m.id, rpcErrorOf(errors.New("x"))); !json.Valid(answer) {
			t.Fatalf("%q: %s", body, answer)
		}
		if err != nil {
			return
		}
		var want struct {
			ID     json.RawMessage
			Method string
			Params map[string]json.RawMessage
		}
		if err := json.Unmarshal(body, &want); err != nil && m.isRequest() {
			t.Fatalf("%q: %v", body, err)
		}
		for _, p := range m.params {
			if string(want.Params[string(p.Name)]) != string(p.Value) {
				t.Errorf("%q: %s is %s", body, p.Name, p.Value)
			}
		}
	})
}
