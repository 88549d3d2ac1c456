package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// toolsOf returns a list of tools, each of about size bytes.
func toolsOf(t *testing.T, size int, names ...string) []registry.ToolSpec {
	t.Helper()
	var list []registry.ToolSpec
	for _, name := range names {
		spec, err := registry.ToolSpec{Name: name, Description: strings.Repeat("d", size)}.NormalizeWithin(
			registry.ToolLimits{Description: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, spec)
	}
	return list
}

func TestEqualToolListsAreShared(t *testing.T) {
	o, phone := newOfferedTools(1<<20), share.Owner{Tenant: "t", Identity: "phone"}
	add := func(by share.Owner, names ...string) *toolList {
		t.Helper()
		list, err := o.add(by, toolsOf(t, 10, names...))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := add(phone, "a", "b")
	held := o.bytes.Held("t")
	again := add(share.Owner{Tenant: "t", Identity: "other"}, "a", "b")
	if again != first || o.bytes.Held("t") != held {
		t.Error("equal lists of a tenant are two, or count twice")
	}
	longer := add(phone, "a", "b", "c")
	if got := o.bytes.Held("t"); got <= held*3/2 || got >= 3*held || longer.all()[2].Name != "c" {
		t.Errorf("two lists with three definitions count as %d bytes, and two definitions as %d", got, held)
	}
	if &longer.all()[0].Parameters[0] != &first.all()[0].Parameters[0] {
		t.Error("lists with the same tool have two copies of it")
	}
	if theirs := add(share.Owner{Tenant: "u"}, "a", "b"); theirs == first || o.bytes.Held("u") != held {
		t.Error("another tenant has the list of the first, or it does not count for it")
	}
	o.release(first)
	if again := add(phone, "a", "b"); again != first {
		t.Error("a list in use was forgotten")
	}
	for range 2 {
		o.release(first)
	}
	o.release(longer)
	o.release(nil)
	if len(o.lists) != 1 || len(o.definitions) != 2 || o.bytes.Held("t") != 0 {
		t.Errorf("%d lists, %d definitions, and %d bytes of the tenant are left of those that nobody offers",
			len(o.lists), len(o.definitions), o.bytes.Held("t"))
	}
}

// One tenant takes all it can get of the definitions that a pod holds; another one still registers tools.
func TestOfferedToolsAreShared(t *testing.T) {
	o := newOfferedTools(1 << 20)
	var lists []*toolList
	var err error
	for i := 0; err == nil; i++ {
		var list *toolList
		hostile := share.Owner{Tenant: "hostile", Identity: fmt.Sprint(i % 8)}
		if list, err = o.add(hostile, toolsOf(t, 20<<10, fmt.Sprint("a", i), fmt.Sprint("b", i))); err == nil {
			lists = append(lists, list)
		}
	}
	if !errors.Is(err, registry.CodeRateLimited) || !strings.Contains(err.Error(), "FARHAND_MAX_OFFERED_BYTES") {
		t.Errorf("at the bound: %v", err)
	}
	held := o.bytes.Held("hostile")
	if held < 1<<18 || held > 1<<19 {
		t.Errorf("a tenant holds %d of %d bytes", held, 1<<20)
	}
	if len(o.definitions) != 2*len(lists) {
		t.Errorf("%d definitions are held of %d lists: one that was refused left some", len(o.definitions), len(lists))
	}
	if _, err := o.add(share.Owner{Tenant: "hostile"}, lists[0].all()); err != nil {
		t.Errorf("what is offered already is refused: %v", err)
	}
	if _, err := o.add(share.Owner{Tenant: "other"}, toolsOf(t, 20<<10, "a", "b", "c")); err != nil {
		t.Errorf("another tenant is refused: %v", err)
	}
}

// Different lists of the same tools count, too: any number can be made of few definitions.
func TestListsOfTheSameToolsCount(t *testing.T) {
	o, by := newOfferedTools(64<<20), share.Owner{Tenant: "t"}
	all := toolsOf(t, 10, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	var lists []*toolList
	for leave := range all {
		list, err := o.add(by, append(append([]registry.ToolSpec{}, all[:leave]...), all[leave+1:]...))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, list)
	}
	if held := o.bytes.Held("t"); held < int64(len(all)*(len(all)-1)*100) {
		t.Errorf("%d lists of %d tools count as %d bytes", len(lists), len(all)-1, held)
	}
	for _, list := range lists {
		o.release(list)
	}
	if held := o.bytes.Held("t"); held != 0 {
		t.Errorf("%d bytes are held of lists that nobody offers", held)
	}
}

// What a session offered is free again when it has ended, whatever was refused meanwhile.
func TestEndedSessionsOfferNothing(t *testing.T) {
	pod := startPod(t, memory.New(memory.Options{}), "a", func(c *PodConfig) { c.NewToolBytes = 64 << 10 })
	l := connect(t, pod, newNotedConn(), nil, testTool(t, "one"), testTool(t, "two"))
	if err := l.PutTools(t.Context(), toolsOf(t, 20<<10, "large"), nil); !errors.Is(err, registry.CodeRateLimited) {
		t.Errorf("a definition that the budget does not have room for: %v", err)
	}
	if err := l.PutTools(t.Context(), []registry.ToolSpec{testTool(t, "three")}, []string{"one"}); err != nil {
		t.Fatal(err)
	}
	if held := pod.Hub.offered.bytes.Held("t"); held == 0 || len(pod.Hub.offered.lists) != 1 {
		t.Errorf("%d bytes are held of %d lists", held, len(pod.Hub.offered.lists))
	}
	l.Close(t.Context())
	_ = l.PutTools(t.Context(), []registry.ToolSpec{testTool(t, "four")}, nil)
	if held := pod.Hub.offered.bytes.Held("t"); held != 0 || len(pod.Hub.offered.definitions) != 0 {
		t.Errorf("%d bytes are held of a session that has ended", held)
	}
}
