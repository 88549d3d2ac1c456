package api_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"testing"
)

// pages reads a list to its end, calling between before each further page.
func (f *fleet) pages(path string, between func()) []toolRow {
	f.Helper()
	var all []toolRow
	next := path
	for range 10_000 {
		list := decode[toolList](f.get(next), 200)
		all = append(all, list.Tools...)
		if list.NextCursor == "" {
			return all
		}
		if between != nil {
			between()
		}
		next = path + "&cursor=" + url.QueryEscape(list.NextCursor)
	}
	f.Fatal("the list does not end")
	return nil
}

// A cursor belongs to the list that gave it.
func TestCursorOfAnotherList(t *testing.T) {
	f := threeDevices(t)
	lists := []string{"/api/tools?limit=1", "/api/sessions?limit=1", "/api/tools?limit=1&view=grouped",
		"/api/tools?limit=1&format=mcp"}
	for i, from := range lists {
		next := decode[toolList](f.get(from), 200).NextCursor
		if next == "" {
			t.Fatalf("%s has one page only", from)
		}
		for j, to := range lists {
			if r := f.get(to + "&cursor=" + next); (r.status == 200) != (i == j) {
				t.Errorf("cursor of %s used with %s: status %d", from, to, r.status)
			}
		}
	}
}

func TestPagingAllLimits(t *testing.T) {
	f := newFleet(t, setup{})
	var want []string
	for i, n := range []int{3, 0, 1, 7, 2, 0, 0, 5} {
		id, names := fmt.Sprintf("s%d", i), []string{}
		for j := range n {
			names = append(names, fmt.Sprintf("t%d", j))
			want = append(want, id+"/t"+strconv.Itoa(j))
		}
		f.connect(0, session(id), echo, tools(names...)...)
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		equal(t, fmt.Sprintf("limit %d", limit), at(f.pages(fmt.Sprintf("/api/tools?limit=%d", limit), nil)), want)
	}
	exact := decode[toolList](f.get(fmt.Sprintf("/api/tools?limit=%d", len(want))), 200)
	if exact.NextCursor != "" {
		t.Error("a last page that is full promises another")
	}
}

// TestPagingWhileDevicesComeAndGo: whoever stays is listed exactly once, in order, whatever the others do; nobody is
// listed twice under one connection.
func TestPagingWhileDevicesComeAndGo(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	random := rand.New(rand.NewPCG(1, 2)) // always the same story
	names := func() []string {
		all := []string{"a", "b", "c", "d", "e", "f"}
		return all[:1+random.IntN(len(all))]
	}
	var stays []string
	leaving := make(map[string]*device)
	for i := range 40 {
		id := fmt.Sprintf("x%02d", random.IntN(100)*100+i)
		offers := names()
		d := f.connect(i%2, session(id), echo, tools(offers...)...)
		if i%2 == 0 {
			leaving[id] = d
			continue
		}
		for _, n := range offers {
			stays = append(stays, id+"/"+n)
		}
	}
	newcomers := 0
	churn := func() {
		for id, d := range leaving {
			d.gone()
			delete(leaving, id)
			break
		}
		newcomers++
		if newcomers < 30 {
			f.connect(newcomers%2, session(fmt.Sprintf("new%d", newcomers)), echo, tools(names()...)...)
		}
	}
	got := f.pages("/api/tools?limit=4", churn)
	var stayed []string
	seen := make(map[string]bool)
	for _, row := range at(got) {
		if seen[row] {
			t.Errorf("%s is listed twice", row)
		}
		seen[row] = true
		if slices.Contains(stays, row) {
			stayed = append(stayed, row)
		}
	}
	equal(t, "who stayed", stayed, stays)
}

// A session that leaves while the page boundary is inside it, and one whose tools change there.
func TestPagingInsideASession(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("a", "b", "c")...)
	f.connect(0, session("s2"), echo, tools("a")...)
	first := decode[toolList](f.get("/api/tools?limit=2"), 200)
	f.must(d.local.PutTools(t.Context(), tools("bb"), []string{"a"}))
	second := decode[toolList](f.get("/api/tools?limit=2&cursor="+first.NextCursor), 200)
	equal(t, "after a change", at(second.Tools), []string{"s1/bb", "s1/c"})
	d.gone()
	second = decode[toolList](f.get("/api/tools?limit=2&cursor="+first.NextCursor), 200)
	equal(t, "after leaving", at(second.Tools), []string{"s2/a"})
}
