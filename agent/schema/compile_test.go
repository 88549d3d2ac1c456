package schema

import (
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// What is too large is refused with a reason that names the limit.
func TestLimitsOfSchemas(t *testing.T) {
	pattern := func(p string) string { return fmt.Sprintf(`{"pattern":%q}`, p) }
	for name, tt := range map[string]struct{ schema, reason string }{
		"long pattern":    {pattern(strings.Repeat("c{1000}", 250)), "1024 bytes"},
		"large program":   {pattern(strings.Repeat("c{999}", 5)), "4096 instructions"},
		"nested repeats":  {pattern("(?:(?:a{9}b{9}){9}){9}" + strings.Repeat("z{999}", 3)), "4096 instructions"},
		"large classes":   {pattern(`^` + strings.Repeat(`[\pL\pN\pS]`, 20) + `$`), ""},
		"unicode classes": {pattern(`^` + strings.Repeat(`[\pL\pN\pS]`, 90) + `$`), "classes like"},
		"folded ranges":   {pattern(`(?s-i:x)(?i)` + strings.Repeat("[B-𞥂]", 100)), "characters under (?i)"},
		"folded hex":      {pattern(`(?i:` + strings.Repeat(`[\x{42}-\x{1e942}]`, 40) + `)`), "characters under (?i)"},
		"russian":         {pattern(`(?i)^[а-яё]+ [a-z\x{430}-\x{44f}]+-[Ѐ-ӿ]+-[一-龥]+$`), ""},
		"many classes": {`{"allOf":[` + each(20,
			func(i int) string { return fmt.Sprintf(`{"pattern":"^[\\pL\\pN]{90%d}$"}`, i) }) + `]}`,
			"compiled patterns take more than"},
		"many patterns": {`{"allOf":[` + each(129,
			func(i int) string { return fmt.Sprintf(`{"pattern":"a%d"}`, i) }) + `]}`, "128 patterns"},
		"pattern of names": {`{"patternProperties":{"` + strings.Repeat("c{999}", 5) + `":true}}`, "4096 instructions"},
		"many subschemas":  {`{"allOf":[` + each(4100, func(int) string { return `{}` }) + `]}`, "4096 subschemas"},
		"long pointers": {`{"properties":{"` + strings.Repeat("x", 30_000) + `":{"allOf":[` +
			each(1000, func(int) string { return `{"minimum":1}` }) + `]}}}`,
			"pointers"},
		"many ids": {`{"$defs":{` + each(20, func(i int) string {
			return fmt.Sprintf(`"d%d":{"$id":"http://x/%d"}`, i,
				i)
		}) + `}}`, "16 ids"},
		"long id": {`{"$id":"http://x/` + strings.Repeat("x", 600) + `"}`, "512 bytes"},
		"odd refs": {`{"x":{` + each(70, func(i int) string { return fmt.Sprintf(`"d%d":{}`, i) }) + `},"allOf":[` +
			each(70, func(i int) string { return fmt.Sprintf(`{"$ref":"#/x/d%d"}`, i) }) + `]}`, "64 references"},
		"long number": {`{"minimum":` + strings.Repeat("7", 500) + `}`, "400 characters"},
	} {
		_, err := Compile([]byte(tt.schema))
		switch {
		case tt.reason == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.reason != "" && (err == nil || !strings.Contains(err.Error(), tt.reason)):
			t.Errorf("%s: %v, want %q", name, err, tt.reason)
		}
	}
}

// What a pattern is charged for is at least what it becomes.
func TestProgramsAreNotLargerThanMeasured(t *testing.T) {
	parts := []string{"a", "abc", ".", `\d`, "[a-z]", `[^\pL]`, "(?i)k", "(?:ab|cd|)", "(x)", "^", "$", `\b`, "(?s:.)",
		"[a-c]|[x-z]|5"}
	repeats := []string{"", "*", "+", "?", "{3}", "{2,}", "{2,5}", "{0,4}", "{0}", "*?", "{0,1}"}
	g := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := ""
		for range 1 + g.IntN(3) {
			text += "(?:" + parts[g.IntN(len(parts))] + parts[g.IntN(len(parts))] + ")" + repeats[g.IntN(len(repeats))]
			if g.IntN(2) == 0 {
				text = "(?:" + text + ")" + repeats[g.IntN(len(repeats))]
			}
		}
		var cost parseCost
		instructions, _, err := cost.measure(text)
		if err != nil {
			continue // as "**"
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if len(program.Inst) > instructions+2 { // beside its beginning and its end
			t.Fatalf("%s has %d instructions and was measured as %d", text, len(program.Inst), instructions)
		}
	}
}

// A schema of 64 KiB that is as slow to compile as its author could make it.
func slowToCompile() map[string]string {
	return map[string]string{
		"subschemas": `{"allOf":[` + each(1600, func(int) string { return `{"minimum":1}` }) + `]}`,
		"nodes":      `{"enum":[` + each(3000, func(int) string { return `{}` }) + `]}`,
		"ids": `{"$defs":{` + each(1500, func(i int) string {
			id := ""
			if i < maxIDs {
				id = fmt.Sprintf(`"$id":"http://x/%s%d",`, strings.Repeat("y", 400), i)
			}
			return fmt.Sprintf(`"d%d":{%s"$ref":"#"}`, i, id)
		}) + `}}`,
		"odd refs": `{"x":{` + each(1200, func(i int) string { return fmt.Sprintf(`"d%d":{}`, i) }) + `},"allOf":[` +
			each(maxOddRefs, func(i int) string { return fmt.Sprintf(`{"$ref":"#/x/d%d"}`, i) }) + `]}`,
		"anchors": `{"$defs":{` + each(1200, func(i int) string {
			return fmt.Sprintf(`"d%d":{"$dynamicAnchor":"a%d"}`,
				i, i)
		}) + `}}`,
		"refs": `{"$defs":{` + each(700, func(i int) string { return fmt.Sprintf(`"d%d":{"type":"string"}`, i) }) +
			`},"allOf":[` +
			each(700, func(i int) string { return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i) }) + `]}`,
		"expansion": `{"$defs":{"l0":{},` + each(12, func(i int) string {
			return fmt.Sprintf(`"l%d":{"allOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]}`, i+1, i, i)
		}) + `},"$ref":"#/$defs/l12"}`,
		"patterns": `{"allOf":[` + each(8, func(i int) string {
			return fmt.Sprintf(`{"pattern":"^[\\pL]{%d}$"}`,
				30+i)
		}) + `]}`,
		"programs": `{"allOf":[` + each(8, func(i int) string {
			return fmt.Sprintf(`{"pattern":"(?:a?b){49%d}[x-z]{49%d}"}`, i, i)
		}) + `]}`,
		"required": `{"required":[` + each(6000, func(i int) string { return fmt.Sprintf(`"n%d"`, i) }) + `]}`,
		"exponents": `{"$schema":"http://json-schema.org/draft-04/schema#","enum":[` +
			each(6000, func(i int) string { return fmt.Sprintf(`%de-999`, i) }) + `]}`,
		"wrong everywhere": `{"allOf":[` + each(1500, func(int) string { return `{"minimum":"1","type":1}` }) + `]}`,
	}
}

// None takes long to compile or more memory than it is charged for. Not parallel: it looks at the heap.
func TestCompilingIsBounded(t *testing.T) {
	for name, text := range slowToCompile() {
		before := heap()
		var s *Schema
		var err error
		took := testkit.CPU(t, func() { s, err = Compile([]byte(text)) })
		grown := heap() - before
		if err != nil {
			t.Logf("%s: %v, refused: %.100s", name, took, err)
		} else {
			t.Logf("%s: %v, %d bytes, charged %d", name, took, grown, s.Size())
			if grown > s.Size()+s.Size()/4+1<<16 {
				t.Errorf("%s takes %d bytes and is charged for %d", name, grown, s.Size())
			}
		}
		if took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		if len(text) > 64<<10 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		runtime.KeepAlive(s)
	}
}

// Thousands of devices may register schemas at once that take long, each waiting for its turn. A call waits for none.
func TestRegistrationsKeepNoCallWaiting(t *testing.T) {
	s := NewValidator()
	takeTurns(t, s.checking)
	spec := registry.ToolSpec{Name: "t", Parameters: []byte(`{"type":"object"}`)}
	if err := s.Validate(t.Context(), anyone, spec, []byte(`{}`), time.Now().Add(100*time.Millisecond)); err != nil {
		t.Errorf("a call while all slots of registrations are taken: %v", err)
	}
}

// anyone asks where it does not matter who does.
var anyone share.Owner

// takeTurns takes all turns of a pool, as two tenants.
func takeTurns(t *testing.T, p *share.Pool) {
	t.Helper()
	for _, tenant := range []string{"a", "b"} {
		for taken := false; ; taken = true {
			if _, err := p.Try(share.Owner{Tenant: tenant}, 1); err != nil {
				if !taken {
					t.Fatal(err)
				}
				break
			}
		}
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
