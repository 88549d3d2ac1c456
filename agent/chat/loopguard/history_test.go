package loopguard

import (
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

func TestRunOf(t *testing.T) {
	// Each call is a letter and its outcome a digit; "." is a call that has not ended.
	// The turns are capitals; a call without one is of the turn before.
	for text, want := range map[string]run{
		"a1":                       {length: 1},
		"a1 a1 a1":                 {length: 3, again: true},
		"a1 a2 a2":                 {length: 2, again: true},
		"b1 a1 a1":                 {length: 2, again: true},
		"a1 a. a1":                 {length: 3, again: true},
		"a1 a. a2":                 {length: 2, again: true},
		"a. a. a.":                 {length: 3, again: true},
		"a1 b1 a1":                 {length: 1},
		"a1 b1 a1 b1":              {length: 4, alternating: true, again: true},
		"a1 b2 a1 b2 a.":           {length: 5, alternating: true, again: true},
		"a1 b1 a1 b2":              {length: 1},
		"a2 b1 a1 b1 a1 b.":        {length: 5, alternating: true, again: true},
		"a1 a2 a1 a2":              {length: 1},
		"c1 a1 b1 a1 b1 a1":        {length: 5, alternating: true, again: true},
		"a1 b1 c1 a1 b1 c1":        {length: 1},
		"a1 a1 a1 T a1":            {length: 4},
		"a1 a1 a1 T a1 a1":         {length: 5, again: true},
		"a1 a1 T a2 a1":            {length: 1},
		"a1 T a1 S a1 T a.":        {length: 4, again: true},
		"a1 b1 a1 b1 T a1 b1":      {length: 6, alternating: true},
		"a1 b1 a1 b1 T a1 b1 a.":   {length: 7, alternating: true, again: true},
		"a1 a1 T b1 a1 b1 a1 S b1": {length: 6, alternating: true},
	} {
		var calls []made
		turn := ""
		for i, c := range strings.Fields(text) {
			if len(c) == 1 {
				turn = c
				continue
			}
			calls = append(calls, made{id: string(rune('0' + i)), call: c[:1], turn: turn,
				outcome: strings.Trim(c[1:], ".")})
		}
		if got := runOf(calls, calls[len(calls)-1].id); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	if got := runOf([]made{{id: "1", call: "a"}}, "2"); got != (run{}) {
		t.Errorf("a call that is not there: %+v", got)
	}
}

// Calls count in the order in which they began, whatever the order in which they end.
func TestParseTrail(t *testing.T) {
	calls := parseHistory([]string{
		"s 1 a t", "s 2 b t", "", "s", "x 3 c", "e 2 b t o2", "e  b t o", "e 1 a t o1", "e 4 c u o4", "s 5 a u",
		"s 5 a u more", "s 6 a", "e 6 a o",
	})
	want := []made{
		{id: "1", call: "a", turn: "t", outcome: "o1"}, {id: "2", call: "b", turn: "t", outcome: "o2"},
		{id: "4", call: "c", turn: "u", outcome: "o4", unasked: true}, {id: "5", call: "a", turn: "u"},
	}
	if !slices.Equal(calls, want) {
		t.Errorf("%+v", calls)
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th",
		20: "20th", 21: "21st", 101: "101st", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func FuzzTrail(f *testing.F) {
	f.Add("s 1 a t\ne 1 a t o\ne 2 a t o", "2")
	f.Add("e 1 a t o\ns 1 b t\n\n e\ns  ", "1")
	f.Fuzz(func(t *testing.T, text, id string) {
		lines := strings.Split(text, "\n")
		for _, line := range lines {
			if e, ok := parseEntry(line); ok && e.String() != line {
				t.Errorf("%q became %q", line, e.String())
			}
		}
		calls := parseHistory(lines)
		if r := runOf(calls, id); len(calls) > len(lines) || r.length > len(calls) || r.length < 0 {
			t.Errorf("%d lines, %d calls, run %+v", len(lines), len(calls), r)
		}
	})
}

// FuzzCallHash holds arguments that mean the same against each other, however they are written.
func FuzzCallHash(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[null,"x"]}`, `{"b":{"y":1.0,"x":1e2}}`, `{`, ``,
		`{"a":"\u00fc\u2028<"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, args string) {
		asked, err := registry.ParseJSON([]byte(args))
		if err != nil {
			return
		}
		inv := agent.Invocation{Spec: registry.ToolSpec{Name: "x"}, Asked: asked}
		first := callHash(inv)
		if first != callHash(inv) {
			t.Fatal("not stable")
		}
		canonical, err := strictjson.Canonical(inv.Asked.Raw())
		if err != nil {
			return
		}
		inv.Asked = registry.MustJSON(" " + string(canonical) + "\n")
		if callHash(inv) != first {
			t.Errorf("%q and %q differ", args, canonical)
		}
	})
}

// Two pictures with the same words are two outcomes, one picture twice is one.
func TestOutcomesWithParts(t *testing.T) {
	seen := func(data string) string {
		return outcomeHash(registry.Result{Success: true, Output: "click", Parts: []registry.Part{
			{Type: registry.PartImage, MIMEType: "image/png", Data: []byte(data), Size: int64(len(data))}}}, nil)
	}
	if first := seen("a"); first == seen("b") || first != seen("a") ||
		first == outcomeHash(registry.Result{Success: true, Output: "click"}, nil) {
		t.Error("outcomes are told apart by their text alone")
	}
}
