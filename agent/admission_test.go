package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
)

func TestAdmission(t *testing.T) {
	policy := newPolicy(t, agent.PolicyRules{RegisterDeny: []string{"exec", "sys.*"}})
	a := agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{MaxTools: 2})
	got, err := a.Admit(t.Context(), registry.ToolSpec{Name: "t", Description: "a\u202eb\x00c",
		Parameters: json.RawMessage(`{ "type" : "object" }`)}, agent.SessionTools{Tools: 1})
	if err != nil || got.Description != "abc" || string(got.Parameters) != `{"type":"object"}` {
		t.Errorf("admitted %+v, %v", got, err)
	}
	if got, err = a.Admit(t.Context(), registry.ToolSpec{Name: "bare"}, agent.SessionTools{}); err != nil ||
		string(got.Parameters) != `{"type":"object"}` {
		t.Errorf("admitted %+v, %v", got, err)
	}
	for name, tt := range map[string]struct {
		spec    registry.ToolSpec
		offered int
		code    registry.Code
	}{
		"bad name": {registry.ToolSpec{Name: "1 t"}, 0, registry.CodeInvalidRequest},
		"no name":  {registry.ToolSpec{}, 0, registry.CodeInvalidRequest},
		"denied":   {registry.ToolSpec{Name: "sys.reboot"}, 0, registry.CodePolicyDenied},
		"too many": {registry.ToolSpec{Name: "t"}, 2, registry.CodeInvalidRequest},
		// Names are compared last, as that costs most.
		"denied, and too many": {registry.ToolSpec{Name: "sys.reboot"}, 2, registry.CodeInvalidRequest},
		"bad schema": {registry.ToolSpec{Name: "t", Parameters: json.RawMessage(`{"type":1}`)}, 0,
			registry.CodeInvalidRequest},
		"no schema": {registry.ToolSpec{Name: "t", Parameters: json.RawMessage(`[]`)}, 0, registry.CodeInvalidRequest},
		"laughs": {registry.ToolSpec{Name: "t", Parameters: json.RawMessage(manyReferences(40))}, 0,
			registry.CodeInvalidRequest},
		"huge": {registry.ToolSpec{Name: "t",
			Parameters: json.RawMessage(`{"description":"` + strings.Repeat("x", registry.MaxSchemaBytes) + `"}`)}, 0,
			registry.CodeInvalidRequest},
		"deep": {registry.ToolSpec{Name: "t", Parameters: json.RawMessage(
			strings.Repeat(`{"not":`, 40) + `{}` + strings.Repeat(`}`, 40))}, 0, registry.CodeInvalidRequest},
		"bad level": {registry.ToolSpec{Name: "t", SecurityLevel: "root"}, 0, registry.CodeInvalidRequest},
	} {
		if _, err := a.Admit(t.Context(), tt.spec, agent.SessionTools{Tools: tt.offered}); err == nil {
			t.Errorf("%s was admitted", name)
		} else {
			wantCode(t, err, tt.code)
		}
	}
	if _, err := agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{}).Admit(t.Context(),
		registry.ToolSpec{Name: "t"}, agent.SessionTools{Tools: agent.DefaultMaxTools - 1,
			Bytes: agent.DefaultMaxToolBytes - 18}); err != nil {
		t.Errorf("the default limit: %v", err)
	}
}

// The name of a built-in tool means that tool, whatever devices would like it to mean.
// The hash of what is admitted is the one that other pods compute of what they read, also of schemas in old spelling.
func TestAdmittedDefinitionsHaveTheHashOfTheirText(t *testing.T) {
	a := agent.NewAdmission(newPolicy(t, agent.PolicyRules{}), schema.NewValidator(), agent.AdmissionLimits{})
	for _, parameters := range []string{
		`{"type":"object"}`, `{"type":"object","properties":{"a":{"type":"string","required":true}}}`,
	} {
		spec, err := a.Admit(t.Context(), registry.ToolSpec{Name: "t", Parameters: json.RawMessage(parameters)},
			agent.SessionTools{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var read registry.ToolSpec
		if err := json.Unmarshal(text, &read); err != nil || read.Hash() != spec.Hash() {
			t.Errorf("%s is admitted as %s: %v", parameters, text, err)
		}
	}
}

func TestAdmissionOfReservedNames(t *testing.T) {
	a := agent.NewAdmission(newPolicy(t, agent.PolicyRules{}), schema.NewValidator(), agent.AdmissionLimits{}, "time",
		"sessions")
	_, err := a.Admit(t.Context(), registry.ToolSpec{Name: "sessions"}, agent.SessionTools{})
	if e := wantCode(t, err, registry.CodePolicyDenied); !strings.Contains(e.Message, `"sessions"`) {
		t.Errorf("the reason does not name it: %s", e.Message)
	}
	if _, err := a.Admit(t.Context(), registry.ToolSpec{Name: "times"}, agent.SessionTools{}); err != nil {
		t.Errorf("another name: %v", err)
	}
}

func TestAdmissionBytes(t *testing.T) {
	policy := newPolicy(t, agent.PolicyRules{})
	a := agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{
		MaxToolBytes: 1000, Tool: registry.ToolLimits{SchemaBytes: 200, SchemaDepth: 3, Description: 4},
	})
	got, err := a.Admit(t.Context(), registry.ToolSpec{Name: "t", Description: "äöüßx"}, agent.SessionTools{})
	if err != nil || got.Description != "äöüß" {
		t.Fatalf("admitted %+v, %v", got, err)
	}
	if _, err := a.Admit(t.Context(), got, agent.SessionTools{Bytes: 1000 - got.Size()}); err != nil {
		t.Errorf("what just fits: %v", err)
	}
	for limit, tt := range map[string]struct {
		parameters string
		bytes      int
	}{
		"1000":     {`{}`, 1000 - len("t{}") + 1},
		"200":      {`{"description":"` + strings.Repeat("x", 200) + `"}`, 0},
		"3 levels": {`{"not":{"not":{"not":{}}}}`, 0},
	} {
		_, err := a.Admit(t.Context(), registry.ToolSpec{Name: "t", Parameters: json.RawMessage(tt.parameters)},
			agent.SessionTools{Bytes: tt.bytes})
		if err == nil || !strings.Contains(err.Error(), limit) {
			t.Errorf("%s: %v", limit, err)
		}
	}
}

func manyReferences(n int) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{"l0":{"type":"object"}`)
	for i := range n {
		fmt.Fprintf(&b, `,"l%d":{"allOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]}`, i+1, i, i)
	}
	return b.String() + fmt.Sprintf(`},"$ref":"#/$defs/l%d"}`, n)
}

// A text that was admitted once is admitted again without being read, but not whatever the session offers beside it.
func TestAdmissionOfKnownTexts(t *testing.T) {
	a := agent.NewAdmission(newPolicy(t, agent.PolicyRules{}), schema.NewValidator(),
		agent.AdmissionLimits{MaxTools: 2, MaxToolBytes: 1000})
	text := []byte(`{"name":"pay"}`)
	if _, known := a.Known(text); known {
		t.Error("known before it was admitted")
	}
	spec, err := a.Admit(t.Context(), registry.ToolSpec{Name: "pay"}, agent.SessionTools{})
	if err != nil {
		t.Fatal(err)
	}
	a.Remember(text, agent.Admitted{Spec: spec, Compiled: a.CompiledSize(t.Context(), &auth.Identity{}, spec)})
	text[9] = 'P' // the buffer of a frame is used again
	known, ok := a.Known([]byte(`{"name":"pay"}`))
	if !ok || known.Spec.Hash() != spec.Hash() ||
		known.Compiled != a.CompiledSize(t.Context(), &auth.Identity{}, spec) {
		t.Fatalf("known as %+v, %v", known, ok)
	}
	if _, ok := a.Known(text); ok {
		t.Error("another text is known")
	}
	lookalike := new(agent.Namesakes)
	lookalike.Add("p\u0430y") // a Cyrillic a
	same := new(agent.Namesakes)
	same.AddKnown(known)
	for name, tt := range map[string]struct {
		other agent.SessionTools
		want  string
	}{
		"alone":      {agent.SessionTools{}, ""},
		"its own":    {agent.SessionTools{Names: same}, ""},
		"looks like": {agent.SessionTools{Names: lookalike}, "looks like"},
		"too many":   {agent.SessionTools{Tools: 2}, "at most 2 tools"},
		"too large":  {agent.SessionTools{Bytes: 1000}, "at most 1000 bytes"},
		"compiled":   {agent.SessionTools{Compiled: schema.CacheBytes}, "compiled schemas"},
	} {
		err := a.AdmitKnown(known, tt.other)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if _, direct := a.Admit(t.Context(), spec, tt.other); (direct == nil) != (err == nil) ||
			err != nil && direct.Error() != err.Error() {
			t.Errorf("%s: Admit says %v", name, direct)
		}
	}
}
