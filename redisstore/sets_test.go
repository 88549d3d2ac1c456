package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestToolSetsAreOneForOneContent(t *testing.T) {
	a, b, c := spec(t, "a", "x"), spec(t, "b", "x"), spec(t, "c", "x")
	set := newToolSet([]registry.ToolSpec{c, a, b})
	if same := newToolSet([]registry.ToolSpec{a, b, c}); same.hash != set.hash || len(set.hash) != 22 {
		t.Errorf("hashes %q and %q", set.hash, same.hash)
	}
	if other := newToolSet([]registry.ToolSpec{a, b, spec(t, "c", "y")}); other.hash == set.hash {
		t.Error("different sets have the same hash")
	}
	read := parseToolSet(set.hash, string(appendSetText(nil, []registry.ToolSpec{a, b, c})))
	if !slices.Equal(read.tools, set.tools) {
		t.Errorf("read %v, want %v", read.tools, set.tools)
	}
	twice := newToolSet([]registry.ToolSpec{b, a, a})
	if len(twice.tools) != 2 || !twice.offers("b", "") || twice.offers("c", "") {
		t.Errorf("tools %v", twice.tools)
	}
	if none := newToolSet(nil); none.hash != "" || len(none.offerMembers()) != 0 {
		t.Errorf("the empty set is %+v", none)
	}
}

// TestToolsInManySets finds the sessions of a tool by merging, and, when it is in too many sets, without.
func TestToolsInManySets(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	var want []string
	for i := range maxMerge + 6 {
		name := fmt.Sprintf("s%d", (i*7)%100)
		want = append(want, name)
		putTools(t, s, claim(t, s, name, "a"), spec(t, "common", "x"), spec(t, "own", fmt.Sprint(i)))
		if n := i + 1; n != 5 && n != maxMerge && n != maxMerge+6 {
			continue
		}
		_, _, merged, err := s.toolSource(ctx, registry.Query{Tenant: tenant, Tool: "common"})
		if err != nil || merged != (i < maxMerge) {
			t.Fatalf("%d sets: merged %v, %v", i+1, merged, err)
		}
		for _, limit := range []int{3, 100} {
			if got := listed(t, s, registry.Query{Tool: "common", Limit: limit}); got != strings.Join(want, " ") {
				t.Errorf("%d sets, pages of %d: %s\nwant %v", i+1, limit, got, want)
			}
		}
		newest := slices.Clone(want)
		slices.Reverse(newest)
		got := listed(t, s, registry.Query{Tool: "common", Limit: 4, Newest: true})
		if got != strings.Join(newest, " ") {
			t.Errorf("%d sets, newest first: %s", i+1, got)
		}
	}
	groups, _, err := s.OfferedTools(ctx, registry.OfferedToolQuery{Tenant: tenant, Name: "common"})
	if err != nil || len(groups) != 1 || groups[0].Sessions != maxMerge+6 {
		t.Errorf("groups %+v, %v", groups, err)
	}
}

// A session that changes what it offers all the time does not fill the index of a tenant whose tools nobody lists.
func TestOffersOfFormerSetsGo(t *testing.T) {
	s := storeOn(t, Options{})
	heartbeat(t, s, "a")
	var all []registry.ToolSpec
	for i := range 50 {
		all = append(all, spec(t, fmt.Sprintf("t%d", i), "x"))
	}
	putTools(t, s, claim(t, s, "stays", "a"), all...)
	sess := claim(t, s, "s1", "a")
	for i := range 100 {
		putTools(t, s, sess, append(slices.Clone(all[1:]), spec(t, "own", fmt.Sprint(i)))...)
	}
	c, err := s.conn.Do(t.Context(), "ZCARD", offersIndex(tenant))
	if err != nil || c.Int() > 5*collectEvery {
		t.Errorf("%d entries of %d tools that are offered, %v", c.Int(), 2*len(all), err)
	}
	groups, _, err := s.OfferedTools(t.Context(), registry.OfferedToolQuery{Tenant: tenant, Limit: 100})
	if err != nil || len(groups) != len(all)+1 {
		t.Errorf("%d tools are listed, %v", len(groups), err)
	}
}

// TestASetThatAppearsMeanwhileIsRead: the reader knows one set, and the session has gone on to another.
func TestASetThatAppearsMeanwhileIsRead(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	sess := claim(t, s, "s1", "a")
	putTools(t, s, sess, spec(t, "camera", "x"))
	from, _, _, err := s.toolSource(ctx, registry.Query{Tenant: tenant, Tool: "camera"})
	if err != nil {
		t.Fatal(err)
	}
	putTools(t, s, sess, spec(t, "camera", "x"), spec(t, "mic", "x"))
	places, err := s.readPlaces(ctx, &from, registry.Cursor{}, 10, false)
	if err != nil || len(places) != 1 || places[0].Session != "s1" {
		t.Errorf("places %v, %v", places, err)
	}
}
