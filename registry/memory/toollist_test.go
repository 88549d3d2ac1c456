package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// Sessions with equal tools have the list of their pod: a copy for each would take gigabytes of a fleet's memory.
func TestSessionsShareTheirLists(t *testing.T) {
	m := New(Options{})
	tools := []registry.ToolSpec{{Name: "a"}, {Name: "b"}}
	for _, id := range []string{"one", "two"} {
		s := registry.Session{Key: registry.Key{Tenant: "t", Session: id}, Pod: "pod"}
		claimed, err := m.Claim(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SetTools(t.Context(), claimed.Session, tools); err != nil {
			t.Fatal(err)
		}
	}
	for key, stored := range m.sessions.byTenant["t"] {
		if &stored.tools[0] != &tools[0] {
			t.Errorf("%v has a list of its own", key)
		}
		if left := stored.leaves(m.opts.Now()); &left.tools[0] != &tools[0] {
			t.Errorf("what is expected of %v is a list of its own", key)
		}
	}
}

func TestToolLists(t *testing.T) {
	list := newToolList([]registry.ToolSpec{{Name: "b"}, {Name: "a"}, {Name: "b", Description: "last"}})
	list = registry.MergeTools(list, []registry.ToolSpec{{Name: "c"}, {Name: "a", Description: "other"}}, nil)
	names := ""
	for _, t := range list {
		names += t.Name + t.Description + " "
	}
	if names != "aother blast c " || !slices.IsSortedFunc(list, func(a, b registry.ToolSpec) int {
		return int(a.Name[0]) - int(b.Name[0])
	}) {
		t.Error(names)
	}
	if _, ok := list.get("d"); ok {
		t.Error("there is a tool that nobody offers")
	}
	if b, ok := list.get("b"); !ok || b.Description != "last" {
		t.Errorf("%+v", b)
	}
}

// A session that comes back with other tools each time is expected to have a bounded number of them.
func TestExpectedToolsAreBounded(t *testing.T) {
	now := time.Now()
	stored := &storedSession{}
	for i := range 20 {
		tools := make([]registry.ToolSpec, 100)
		for n := range tools {
			tools[n].Name = fmt.Sprintf("tool-%03d-%03d", i, n)
		}
		stored.tools = newToolList(tools)
		if left := stored.leaves(now); len(left.tools) < 100 || len(left.tools) > maxExpected {
			t.Fatalf("%d tools are expected", len(left.tools))
		} else {
			stored.expected = left
		}
	}
}

// Tickets and states that nobody was given leave nothing behind.
func TestInventedNoncesAreNotKept(t *testing.T) {
	m := New(Options{})
	for i := range 100 {
		if ok, err := m.TakeNonce(t.Context(), fmt.Sprint("invented", i), "owner", "text"); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := m.PutNonce(t.Context(), "t", "owner", "text", time.Minute); err != nil {
		t.Fatal(err)
	}
	if ok, err := m.TakeNonce(t.Context(), "t", "owner", "text"); !ok || err != nil {
		t.Error(ok, err)
	}
	if n := len(m.documents.indexes); n != 0 {
		t.Errorf("%d owners are kept", n)
	}
}
