package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

func list(item string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

func each(n int, f func(i int) string) string {
	var all []string
	for i := range n {
		all = append(all, f(i))
	}
	return strings.Join(all, ",")
}

// attacks are schemas with arguments that are small and expensive together.
func attacks() map[string]struct{ schema, args string } {
	name := func(i int) string { return fmt.Sprintf(`"n%05d"`, i) }
	return map[string]struct{ schema, args string }{
		"required x objects": {`{"items":{"required":[` + each(6500, name) + `]}}`, list("{}", 340_000)},
		"anyOf x numbers": {`{"items":{"anyOf":[` +
			each(33, func(int) string { return `{"type":"string"}` }) + `]}}`, list("1", 490_000)},
		"anyOf, last x numbers": {`{"items":{"anyOf":[` +
			each(33, func(int) string { return `{"type":"string"}` }) + `,true]}}`, list("1", 490_000)},
		"required in not x objects": {`{"items":{"not":{"required":[` + each(6500, name) + `]}}}`, list("{}", 340_000)},
		"oneOf x numbers": {`{"items":{"oneOf":[` + each(33, func(int) string { return `{"minimum":1}` }) +
			`]}}`, list("1", 490_000)},
		"allOf x numbers": {`{"items":{"allOf":[` + each(400, func(int) string { return `{"minimum":0.5}` }) +
			`]}}`, list("1.25", 200_000)},
		"digits x multipleOf": {`{"allOf":[` + each(2000, func(int) string { return `{"multipleOf":0.7}` }) +
			`]}`, strings.Repeat("7", 1_000_000)},
		"digits x numbers": {`{"items":{"allOf":[` +
			each(2000, func(int) string { return `{"multipleOf":1e-999}` }) + `]}}`,
			list(strings.Repeat("7", 900)+"e-999", 1000)},
		"exponents": {`{"items":{"enum":[` +
			each(5000, func(i int) string { return fmt.Sprintf("%de-999", i) }) + `,77e-998]}}`,
			list("77e-998", 100_000)},
		"pattern x text": {`{"pattern":"^(?:[a-q][^u-z]{1,900})*x"}`, `"` + strings.Repeat("a", 900_000) +
			`"`},
		"pattern x texts": {`{"items":{"pattern":"(?:[a-q][^u-z]{1,900})*x"}}`,
			list(`"`+strings.Repeat("a", 60)+`"`, 15_000)},
		"patterns x names": {`{"patternProperties":{` +
			each(20, func(i int) string { return fmt.Sprintf(`"a{1,%d}b":true`, i+500) }) + `}}`,
			"{" + each(60_000, func(i int) string { return fmt.Sprintf(`"aaaa%d":1`, i) }) + "}"},
		"enum x items": {`{"items":{"enum":[` + each(12_000, func(i int) string { return fmt.Sprint(i % 9) }) +
			`,-1]}}`, list("-1", 330_000)},
		"enum of texts": {`{"items":{"enum":[` +
			each(60, func(i int) string { return fmt.Sprintf(`"%s%02d"`, strings.Repeat("x", 900), i) }) + `,"` +
			strings.Repeat("x", 902) + `"]}}`, list(`"`+strings.Repeat("x", 902)+`"`, 1100)},
		"uniqueItems": {`{"allOf":[` + each(1000, func(int) string { return `{"uniqueItems":true}` }) + `]}`,
			"[" + each(150_000, func(i int) string { return fmt.Sprint(i) }) + "]"},
		"uniqueItems nested": {`{"uniqueItems":true,"items":{"$ref":"#"}}`, strings.Repeat("[", 60) +
			each(150_000, func(i int) string { return fmt.Sprint(i) }) + strings.Repeat("]", 60)},
		"propertyNames": {`{"propertyNames":{"anyOf":[` + each(1500, func(int) string { return `{"maxLength":1}` }) +
			`,true]}}`,
			"{" + each(90_000, func(i int) string { return fmt.Sprintf(`"x%d":1`, i) }) + "}"},
		"contains": {`{"allOf":[` + each(1000, func(int) string { return `{"contains":{"type":"string"}}` }) +
			`]}`, "[" + each(450_000, func(int) string { return "1" }) + `,""]`},
		"contains nested": {`{"contains":{"$ref":"#"},"minContains":2}`, strings.Repeat("[[],", 60) + "1" +
			strings.Repeat("]", 60)},
		"unevaluatedProperties": {`{"anyOf":[` + each(500,
			func(int) string { return `{"patternProperties":{"x":true}}` }) + `],"unevaluatedProperties":true}`,
			"{" + each(90_000, func(i int) string { return fmt.Sprintf(`"x%d":1`, i) }) + "}"},
		"unevaluated chain": {`{"$defs":{"l0":{"patternProperties":{"x":true},"unevaluatedProperties":false},` +
			each(200, func(i int) string {
				return fmt.Sprintf(`"l%d":{"allOf":[{"$ref":"#/$defs/l%d"}],"unevaluatedProperties":false}`, i+1, i)
			}) + `},"$ref":"#/$defs/l200"}`, "{" + each(90_000,
			func(i int) string { return fmt.Sprintf(`"x%d":1`, i) }) + "}"},
		"unevaluatedItems": {`{"anyOf":[` + each(900, func(int) string { return `{"contains":true}` }) +
			`],"unevaluatedItems":false}`, list("1", 490_000)},
		"doubling recursion": {`{"properties":{"n":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},"required":["x"]}`,
			strings.Repeat(`{"n":`, 60) + "1" + strings.Repeat("}", 60)},
		"doubling by if": {`{"properties":{"n":{"if":{"$ref":"#"},"then":{"$ref":"#"},"else":{"$ref":"#"}}}}`,
			strings.Repeat(`{"n":`, 60) + "1" + strings.Repeat("}", 60)},
		"dependentSchemas": {`{"$defs":{"l0":{},` + each(500, func(i int) string {
			return fmt.Sprintf(`"l%d":{"dependentSchemas":{"a":{"$ref":"#/$defs/l%d"}}}`, i+1, i)
		}) + `},"items":{"$ref":"#/$defs/l500"}}`, list(`{"a":1}`, 120_000)},
		"deep chain x depth": {`{"$defs":{"l0":{"properties":{"a":{"$ref":"#"}}},` + each(1000, func(i int) string {
			return fmt.Sprintf(`"l%d":{"$ref":"#/$defs/l%d"}`, i+1, i)
		}) + `},"$ref":"#/$defs/l1000"}`, strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)},
		"required names shown": {`{"required":[` + each(6500, name) + `]}`, `{}`},
		"long name shown": {`{"additionalProperties":{"additionalProperties":false}}`, `{"` +
			strings.Repeat("é", 400_000) + `":{"` + strings.Repeat("é", 40_000) + `":1}}`},
		"long text shown": {`{"items":{"pattern":"^b"}}`, list(`"`+strings.Repeat("a", 40_000)+`"`, 20)},
		"formats": {`{"$schema":"http://json-schema.org/draft-07/schema#","items":{"allOf":[` +
			each(1000, func(int) string { return `{"format":"json-pointer"}` }) + `]}}`,
			list(`"`+strings.Repeat("/", 9000)+`"`, 100)},
		"regex format": {`{"$schema":"http://json-schema.org/draft-07/schema#","items":{"format":"regex"}}`,
			list(`"(?:c{450}){1}d{450}e{450}f{450}"`, 25_000)},
	}
}

// Each ends soon, by itself or with the call, with little memory and few violations.
func TestAttacksAreBounded(t *testing.T) {
	for name, tt := range attacks() {
		t.Run(name, func(t *testing.T) {
			s, err := Compile([]byte(tt.schema))
			if err != nil {
				t.Fatalf("not compiled: %v", err)
			}
			v, err := Decode([]byte(tt.args), 64)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var found []registry.Violation
			took := testkit.CPU(t, func() { found, err = s.Validate(t.Context(), v, Work{}) })
			runtime.ReadMemStats(&after)
			shown := 0
			for _, f := range found {
				shown += len(f.Pointer) + len(f.Message)
			}
			t.Logf("%v, %d MiB, %d violations of %d bytes, size %d, weight %d: %v", took.Round(time.Millisecond),
				(after.TotalAlloc-before.TotalAlloc)>>20, len(found), shown, s.Size(), decodedSize([]byte(tt.args)),
				err)
			if took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(found) > maxViolations || shown > 50_000 {
				t.Errorf("%d violations of %d bytes", len(found), shown)
			}
		})
	}
}

// Whoever stops waiting stops the work.
func TestAttacksEndWithTheirCaller(t *testing.T) {
	for name, tt := range attacks() {
		s, err := Compile([]byte(tt.schema))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v, err := Decode([]byte(tt.args), 64)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		heavy := false
		_, err = s.Validate(ctx, v, Work{BeforeLong: func() error { heavy = true; cancel(); return nil }})
		if heavy && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it went on when its caller had gone: %v", name, err)
		}
		heavy = false
		_, err = s.Validate(t.Context(), v, Work{Deadline: time.Now().Add(-time.Second),
			BeforeLong: func() error { heavy = true; return nil }})
		if heavy {
			t.Errorf("%s: it went on after the deadline: %v", name, err)
		}
		cancel()
	}
}

// Answers are checked by slots and memory of their own: whatever devices return, arguments find theirs.
func TestAnswersTakeNothingOfArguments(t *testing.T) {
	s := NewValidator()
	ctx := t.Context()
	takeAll(t, s.smallOutputs)
	takeAll(t, s.largeOutputs)
	takeAll(t, s.longOutputChecks)
	attack := attacks()["regex format"]
	spec := registry.ToolSpec{Name: "t", Parameters: json.RawMessage(attack.schema)}
	if err := s.Validate(ctx, anyone, spec, []byte(attack.args), time.Time{}); errors.Is(err, registry.CodeBusy) {
		t.Errorf("arguments wait for answers: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if found := s.CheckOutput(gone, "honest", []byte(`{"type":"string"}`), answerOf(5<<10)); len(found) > 0 {
		t.Errorf("a pod without room for an answer says %+v of it", found)
	}
}

// takeAll takes all of a pool, in the name of many tenants.
func takeAll(t *testing.T, p *share.Pool) {
	t.Helper()
	for n := int64(1 << 40); n > 0; n /= 2 {
		for i := 0; ; i++ {
			if _, err := p.Try(share.Owner{Tenant: fmt.Sprint(n, "-", i)}, n); err != nil {
				break
			}
		}
	}
}

// answerOf returns an object of about n bytes.
func answerOf(n int) registry.Result {
	return registry.NewResult(true, registry.MustJSON(`{"a":"`+strings.Repeat("x", n)+`"}`), "")
}

// A tenant whose large answers are being checked keeps neither the small ones of others waiting nor the large ones.
func TestAnswersOfATenantLeaveRoomForOthers(t *testing.T) {
	s := NewValidator()
	var honest []*testkit.Beside
	for _, n := range []int{100, 5 << 10, 500 << 10} {
		pool := fmt.Sprintf("outputs being checked (decoded bytes), %d bytes each", n)
		honest = append(honest, testkit.Alone(t, pool, func() error {
			if found := s.CheckOutput(t.Context(), "honest", []byte(`{"type":"string"}`),
				answerOf(n)); len(found) != 1 {
				return fmt.Errorf("it was not checked: %+v", found)
			}
			return nil
		}))
	}
	for _, pool := range []*share.Pool{s.smallOutputs, s.largeOutputs} {
		for {
			if _, err := pool.Try(share.Owner{Tenant: "greedy"}, smallArgs); err != nil {
				break
			}
		}
	}
	waits, leave := context.WithCancel(t.Context())
	defer leave()
	for range 100 { // more than there is room for
		go func() { _, _ = s.largeOutputs.Acquire(waits, share.Owner{Tenant: "greedy"}, largeOutputBytes/4) }()
	}
	testkit.Eventually(t, "they wait", func() bool { return s.largeOutputs.Stats().Waiting == 100 })
	for _, h := range honest {
		h.Crowded()
	}
}

// An answer that is too expensive for its schema is not taken for one that was checked.
func TestExpensiveAnswersAreRemarked(t *testing.T) {
	schemas, remarked := NewValidator(), 0
	for name, tt := range attacks() {
		found := schemas.CheckOutput(t.Context(), "t", []byte(tt.schema), registry.Result{
			Success: true, Structured: registry.MustJSON(tt.args),
		})
		if len(found) == 1 && strings.HasPrefix(found[0].Message, "not checked") {
			remarked++
			break
		}
		if size := registry.ViolationsSize(found); len(found) > maxViolations || size > 50_000 {
			t.Errorf("%s: %d violations of %d bytes", name, len(found), size)
		}
	}
	if remarked == 0 {
		t.Error("no attack was too expensive")
	}
}
