package ws

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/mcp"
)

// connWithoutSocket returns a connection of a session, whose frames a test handles itself.
func connWithoutSocket(t *testing.T, cfg Config) *conn {
	t.Helper()
	return anotherConn(t, serverWithoutSockets(t, cfg, 64<<10), auth.Identity{Tenant: "t", Admin: true})
}

// serverWithoutSockets returns a server of a pod with a budget for new definitions of tools.
func serverWithoutSockets(t *testing.T, cfg Config, newToolBytes int64) *Server {
	t.Helper()
	store := memory.New(memory.Options{})
	pod, err := routing.NewPod(routing.PodConfig{
		ID: "a", Store: store, Bus: store.NewBus(), NewToolBytes: newToolBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pod, cfg.Auth, cfg.Origins = pod, auth.NewStaticToken("a token that nobody shows"), &auth.Origins{}
	cfg.Admission = agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{})
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// anotherConn opens a session of a device on a server, without a socket.
func anotherConn(t *testing.T, s *Server, who auth.Identity) *conn {
	t.Helper()
	session := registry.Session{Key: registry.Key{Tenant: who.Tenant, Session: registry.NewCallID()}}
	c := s.newConn(opening{session: session, who: &who})
	var err error
	if c.local, _, err = s.cfg.Pod.Hub.Open(t.Context(), session, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A frame with many definitions costs more than one with few, also if none is admitted.
func TestRejectedDefinitionsCost(t *testing.T) {
	for _, tools := range []int{1, 100} {
		c := connWithoutSocket(t, Config{MaxFrame: 4 * bytesPerUnit, MaxFramesPerSecond: 0.001, FrameBurst: 1})
		frame := &registerToolsFrame{Tools: slices.Repeat([]json.RawMessage{[]byte(`{"name":"no name"}`)}, tools)}
		_ = c.registerTools(t.Context(), frame)                 // there is no socket to answer on
		if slow := c.budget.spend(9) > 0; slow != (tools > 1) { // the budget has 18 units
			t.Errorf("%d definitions slow down: %v", tools, slow)
		}
	}
}

// A change of a long list costs more than one of a short list, whether a tool comes or goes.
func TestChangesOfLongListsCostMore(t *testing.T) {
	for _, tools := range []int{1, 100} {
		c := connWithoutSocket(t, Config{MaxFrame: 4 * bytesPerUnit, MaxFramesPerSecond: 0.001, FrameBurst: 1})
		var all []json.RawMessage
		for i := range tools {
			all = append(all, json.RawMessage(`{"name":"t`+strconv.Itoa(i)+`"}`))
		}
		_ = c.registerTools(t.Context(), &registerToolsFrame{Tools: all}) // there is no socket to answer on
		if slow := c.budget.spend(9) > 0; slow != (tools > 1) {           // the budget has 18 units
			t.Errorf("%d tools: registering slows down: %v", tools, slow)
		}
		c.budget.refund(0, 100)
		_ = c.unregisterTools(t.Context(), &unregisterToolsFrame{Names: []string{"t0"}})
		if slow := c.budget.spend(9) > 0; slow != (tools > 1) {
			t.Errorf("%d tools: unregistering slows down: %v", tools, slow)
		}
	}
}

// A frame of many values costs more than one of the same length with few: reading a value takes as long as reading some
// hundred bytes of text. It is priced whether it is accepted or not.
func TestManyValuesCostMore(t *testing.T) {
	many := strings.Repeat(`,"a"`, 1000)
	for frame, slow := range map[string]bool{
		`{"type":"unregister_tools","names":["a"` + many + `]}`:                          true,
		`{"type":"unregister_tools","names":[0` + many + `]}`:                            true,
		`{"type":"register_tools","tools":["a"` + many + `]}`:                            true,
		`{"type":"connect","capabilities":["a"` + many + `]}`:                            true,
		`{"type":"abort","unknown":["a"` + many + `]}`:                                   true,
		`{"type":"unregister_tools","names":["a"]}`:                                      false,
		`{"type":"message","content":"` + strings.ReplaceAll(many, `"`, `,`) + `"}`:      false,
		`{"type":"unregister_tools","names":["` + strings.Repeat("a", len(many)) + `"]}`: false,
	} {
		c := connWithoutSocket(t, Config{MaxFrame: 4 * bytesPerUnit, MaxFramesPerSecond: 0.001, FrameBurst: 1})
		_, _, _ = c.decode([]byte(frame))
		if got := c.budget.spend(9) > 0; got != slow { // the budget has 18 units
			t.Errorf("%.50s slows down: %v", frame, got)
		}
	}
}

// What a refused definition would take is not counted: the session does not offer it. A device could also have the pod
// remember one name after the other.
func TestRefusedToolsAreNotCounted(t *testing.T) {
	c := connWithoutSocket(t, Config{})
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

// A frame that has the store work costs more than one that does not, so that a device is read more slowly which sends
// such frames as fast as it may.
func TestFramesThatHaveTheStoreWorkCostMore(t *testing.T) {
	slot := &toolResultFrame{ID: "call"}
	slot.result.Parts = []registry.Part{{Type: registry.PartFile, URL: registry.PathUpload + "x"}}
	for _, tc := range []struct {
		frame any
		slow  bool
	}{
		{&connectFrame{}, true}, {&registerToolsFrame{}, true}, {&unregisterToolsFrame{}, true},
		{&uploadRequestFrame{ID: "call"}, true}, {&approvalResponseFrame{ID: "x", Decision: decisionDeny}, true},
		{slot, true}, {&mcp.Lost{Call: "call"}, true}, {&toolCallAcceptedFrame{ID: "call"}, false},
		{&abortFrame{}, false},
	} {
		c := connWithoutSocket(t, Config{MaxFrame: 4 * bytesPerUnit, MaxFramesPerSecond: 0.001, FrameBurst: 1})
		_ = c.handle(tc.frame)                              // there is no socket to answer on
		if slow := c.budget.spend(9) > 0; slow != tc.slow { // the budget has 18 units
			t.Errorf("%T slows down: %v", tc.frame, slow)
		}
	}
}

// waitingApprovals counts how often the approvals that wait for a device are read.
type waitingApprovals struct {
	Decisions
	read atomic.Int64
}

func (w *waitingApprovals) WaitingAt(context.Context, registry.Session) ([]registry.Approval, error) {
	w.read.Add(1)
	return nil, nil
}

// A device that connects all the time does not have its waiting approvals read each time.
func TestWaitingApprovalsAreNotReadAllTheTime(t *testing.T) {
	waiting := new(waitingApprovals)
	s := serverWithoutSockets(t, Config{Decisions: waiting}, 64<<10)
	c := anotherConn(t, s, auth.Identity{Tenant: "t", Admin: true})
	if err := c.local.Update(t.Context(), func(s *registry.Session) {
		s.Capabilities = []string{registry.CapabilityApproval}
	}); err != nil {
		t.Fatal(err)
	}
	const connections = 500
	for range connections {
		c.shownWaiting = false // as of another connection of the session
		c.showWaiting()
	}
	testkit.Eventually(t, "all were dealt with", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tasks == 0
	})
	if n := waiting.read.Load(); n < 10 || n > connections/2 {
		t.Errorf("read %d times", n)
	}
}
