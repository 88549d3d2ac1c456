package ws

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// What a refused definition would take is not counted: the session does not offer it. A device could also have the pod
// remember one name after the other.
func TestRefusedToolsAreNotCounted(t *testing.T) {
	store := memory.New(memory.Options{})
	pod, err := routing.NewPod(routing.PodConfig{ID: "a", Store: store, Bus: store.NewBus(), NewToolBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(Config{
		Pod: pod, Admission: agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{}),
		Auth: auth.NewStaticToken("a token that nobody shows"), Origins: &auth.Origins{},
	})
	if err != nil {
		t.Fatal(err)
	}
	session := registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}
	c := s.newConn(opening{session: session, who: &auth.Identity{Tenant: "t", Admin: true}})
	if c.local, _, err = pod.Hub.Open(t.Context(), session, c); err != nil {
		t.Fatal(err)
	}
	register := func(name, description string) {
		def := json.RawMessage(`{"name":"` + name + `","description":"` + description +
			`","parameters":{"type":"object"}}`)
		if err := c.registerTools(t.Context(), &registerToolsFrame{Tools: []json.RawMessage{def}}); err != nil {
			t.Fatal(err)
		}
	}
	register("kept", "")
	before := c.compiled[0]
	long := strings.Repeat("x", 3<<10)
	for i := range 10 {
		register("new_"+string(rune('a'+i)), long)
	}
	if len(c.compiled) != len(c.local.Tools()) || len(c.local.Tools()) > 9 || c.compiled[0] != before {
		t.Errorf("%d tools are counted, %d are offered", len(c.compiled), len(c.local.Tools()))
	}
}
