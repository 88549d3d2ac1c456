package schema_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// anyone asks where it does not matter who does.
var anyone share.Owner

func spec(name, parameters string) registry.ToolSpec {
	return registry.ToolSpec{Name: name, Parameters: json.RawMessage(parameters)}
}

func compile(t *testing.T, schemas *schema.Validator, parameters string) error {
	t.Helper()
	_, err := schemas.Compile(t.Context(), anyone, spec("t", parameters))
	return err
}

func TestValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		schema, args string
		pointers     []string // of the violations, sorted; nil: valid
	}{
		"accepts everything": {`{}`, `{"a":[1,{"b":null}]}`, nil},
		"missing":            {`{"required":["a"]}`, `{}`, []string{""}},
		"wrong type":         {`{"properties":{"a":{"type":"string"}}}`, `{"a":1}`, []string{"/a"}},
		"several at once": {`{"properties":{"a":{"type":"string"},"b":{"minimum":3}}}`, `{"a":1,"b":2}`,
			[]string{"/a", "/b"}},
		"deep": {`{"properties":{"a":{"items":{"properties":{"b":{"enum":["x"]}}}}}}`,
			`{"a":[{"b":"x"},{"b":"y"}]}`, []string{"/a/1/b"}},
		"escaped pointer":    {`{"properties":{"a/b~c":{"type":"string"}}}`, `{"a/b~c":1}`, []string{"/a~1b~0c"}},
		"no further members": {`{"properties":{"a":{}},"additionalProperties":false}`, `{"b":1}`, []string{""}},
		"pattern":            {`{"properties":{"a":{"pattern":"^[0-9]+$"}}}`, `{"a":"12x"}`, []string{"/a"}},
		"number beyond floats": {`{"properties":{"a":{"type":"integer","maximum":100}}}`,
			`{"a":123456789012345678901234567890}`, []string{"/a"}},
		"draft 2020 tuple": {`{"properties":{"a":{"prefixItems":[{"type":"string"}]}}}`, `{"a":[1]}`,
			[]string{"/a/0"}},
		"older draft by name": {`{"$schema":"http://json-schema.org/draft-07/schema#",` +
			`"properties":{"a":{"items":[{"type":"string"}]}}}`, `{"a":[1]}`, []string{"/a/0"}},
		"local reference": {`{"$defs":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/s"}}}`, `{"a":1}`,
			[]string{"/a"}},
		"anchor": {`{"$defs":{"s":{"$anchor":"str","type":"string"}},"properties":{"a":{"$ref":"#str"}}}`,
			`{"a":1}`, []string{"/a"}},
	} {
		err := schema.NewValidator().Validate(t.Context(), anyone, spec("t", tt.schema), []byte(tt.args), time.Time{})
		if tt.pointers == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		e := wantCode(t, err, registry.CodeInvalidArguments)
		var got []string
		for _, v := range e.Violations {
			got = append(got, v.Pointer)
			if v.Message == "" {
				t.Errorf("%s: no message for %q", name, v.Pointer)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.pointers) {
			t.Errorf("%s: violations at %q, want %q: %+v", name, got, tt.pointers, e.Violations)
		}
	}
}

func TestViolationsAreBounded(t *testing.T) {
	args := `{"a":[` + strings.TrimSuffix(strings.Repeat(`1,`, 1000), ",") + `]}`
	err := schema.NewValidator().Validate(t.Context(), anyone,
		spec("t", `{"properties":{"a":{"items":{"type":"string"}}}}`),
		[]byte(args), time.Time{})
	if n := len(wantCode(t, err, registry.CodeInvalidArguments).Violations); n == 0 || n > 20 {
		t.Errorf("%d violations", n)
	}
}

func TestUnusableSchemas(t *testing.T) {
	for name, text := range map[string]string{
		"unknown type":           `{"type":"strin"}`,
		"type of a keyword":      `{"required":"a"}`,
		"bad pattern":            `{"properties":{"a":{"pattern":"("}}}`,
		"pattern with lookahead": `{"properties":{"a":{"pattern":"(?=x)"}}}`,
		"pattern of a name":      `{"patternProperties":{"[":{}}}`,
		"dangling reference":     `{"$ref":"#/$defs/absent"}`,
		"dangling anchor":        `{"$ref":"#absent"}`,
		"unknown draft":          `{"$schema":"https://example.com/draft"}`,
	} {
		schemas := schema.NewValidator()
		e := wantCode(t, compile(t, schemas, text), registry.CodeInvalidRequest)
		if !strings.HasPrefix(e.Message, "parameters: ") || strings.Contains(e.Message, "\n") ||
			strings.Contains(e.Message, "farhand:") {
			t.Errorf("%s: the reason is no line for its author: %q", name, e.Message)
		}
		wantCode(t, schemas.Validate(t.Context(), anyone, spec("t", text), []byte(`{}`), time.Time{}),
			registry.CodeInvalidRequest)
	}
}

// A device must not make the gateway fetch anything, by whatever keyword.
func TestRemoteReferencesAreRefused(t *testing.T) {
	var fetched atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		_, _ = w.Write([]byte(`{}`))
	}))
	defer server.Close()
	for _, text := range []string{
		`{"$ref":"` + server.URL + `/s.json"}`,
		`{"properties":{"a":{"$dynamicRef":"` + server.URL + `/s.json"}}}`,
		`{"$id":"` + server.URL + `/base/","properties":{"a":{"$ref":"other.json"}}}`,
		`{"$schema":"` + server.URL + `/meta"}`,
		`{"$ref":"other.json"}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"urn:example:s"}`,
	} {
		if err := compile(t, schema.NewValidator(), text); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	if n := fetched.Load(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// laughs builds a schema of n steps, each of which refers twice to the one before: 2^n visits without a guard.
func laughs(n int) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{"l0":{"type":"object"}`)
	for i := range n {
		fmt.Fprintf(&b, `,"l%d":{"allOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]}`, i+1, i, i)
	}
	return b.String() + fmt.Sprintf(`},"$ref":"#/$defs/l%d"}`, n)
}

func TestBillionLaughsAreRefusedFast(t *testing.T) {
	var err error
	if took := testkit.CPU(t, func() { err = compile(t, schema.NewValidator(), laughs(60)) }); took > 10*time.Second {
		t.Errorf("it took %v", took) // unbounded it would take for ever
	}
	e := wantCode(t, err, registry.CodeInvalidRequest)
	if !strings.Contains(e.Message, "expand") {
		t.Errorf("reason %q", e.Message)
	}
	if err := compile(t, schema.NewValidator(), laughs(5)); err != nil {
		t.Errorf("a harmless one: %v", err)
	}
}

// Every way known to make a small schema expensive is refused before anything is validated, or validated fast.
func TestExpensiveSchemasAreRefusedFast(t *testing.T) {
	steps := func(ref func(int) string, extra func(int) string) string {
		var b strings.Builder
		b.WriteString(`{"$defs":{"l0":{` + extra(0) + `"type":"object"}`)
		for i := range 60 {
			fmt.Fprintf(&b, `,"l%d":{%s"allOf":[{"$ref":%q},{"$ref":%q}]}`, i+1, extra(i+1), ref(i), ref(i))
		}
		return b.String() + fmt.Sprintf(`},"$ref":%q}`, ref(60))
	}
	none := func(int) string { return "" }
	id := func(i int) string { return fmt.Sprintf(`"$id":"http://x/l%d",`, i) }
	anchor := func(i int) string { return fmt.Sprintf(`"$anchor":"l%d",`, i) }
	nested := strings.Repeat(`{"n":`, 60) + `1` + strings.Repeat(`}`, 60)
	for name, tt := range map[string]struct{ schema, args string }{
		"plain": {laughs(60), `{}`},
		"its own URL": {steps(func(i int) string { return fmt.Sprintf("farhand://tool/parameters#/$defs/l%d", i) },
			none), `{}`},
		"percent-encoding": {steps(func(i int) string { return fmt.Sprintf("#/%%24defs/l%d", i) }, none), `{}`},
		"ids":              {steps(func(i int) string { return fmt.Sprintf("http://x/l%d", i) }, id), `{}`},
		"anchors":          {steps(func(i int) string { return fmt.Sprintf("#l%d", i) }, anchor), `{}`},
		"behind a property": {strings.Replace(laughs(60), `"$ref":"#/$defs/l60"`,
			`"properties":{"definitions":{"$ref":"#/$defs/l60"}}`, 1), `{"definitions":{}}`},
		"recursion times data": {`{"properties":{"n":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, nested},
		"recursion by pattern": {`{"patternProperties":{"n":{"$ref":"#"}},"additionalProperties":{"$ref":"#"},` +
			`"properties":{"n":{"$ref":"#"}}}`, nested},
		"dynamic": {`{"$dynamicAnchor":"a","properties":{"n":{"$dynamicRef":"#a"}}}`, nested},
		"huge exponents": {`{"properties":{"n":{"multipleOf":7}}}`, `{"n":[` +
			strings.Repeat(`1e1000000,`, 1000) + `1]}`},
		"exponents in it": {`{"properties":{"n":{"maximum":1e1000000}}}`, `{"n":1}`},
	} {
		var err error
		took := testkit.CPU(t, func() {
			err = schema.NewValidator().Validate(t.Context(), anyone, spec("t", tt.schema), []byte(tt.args),
				time.Time{})
		})
		if took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		wantCode(t, err, registry.CodeInvalidRequest)
	}
}

// What real tools use stays usable: recursion over filters, trees and JSON itself, with arguments of ordinary size.
func TestRecursionOfRealToolsIsAllowed(t *testing.T) {
	for name, tt := range map[string]struct{ schema, args string }{
		"filter": {`{"$defs":{"f":{"oneOf":[
			{"properties":{"op":{"const":"and"},"args":{"items":{"$ref":"#/$defs/f"}}},"required":["op"]},
			{"properties":{"op":{"const":"not"},"arg":{"$ref":"#/$defs/f"}},"required":["op"]},
			{"properties":{"op":{"const":"eq"},"value":true},"required":["op"]}]}},"$ref":"#/$defs/f"}`,
			`{"op":"and","args":[{"op":"not","arg":{"op":"and","args":[{"op":"eq","value":1},{"op":"eq",` +
				`"value":2}]}}]}`},
		"json": {`{"$defs":{"v":{"anyOf":[{"type":["string","number","boolean","null"]},
			{"type":"array","items":{"$ref":"#/$defs/v"}},
			{"type":"object","additionalProperties":{"$ref":"#/$defs/v"}}]}},
			"properties":{"doc":{"$ref":"#/$defs/v"}}}`,
			`{"doc":` + strings.Repeat(`{"a":[1,2,`, 20) + `3` + strings.Repeat(`]}`, 20) + `}`},
		"long list": {`{"properties":{"n":{"type":"array","items":{"type":"integer","minimum":0}}}}`,
			`{"n":[` + strings.Repeat(`1,`, 100_000) + `1]}`},
	} {
		if err := schema.NewValidator().Validate(t.Context(), anyone, spec("t", tt.schema), []byte(tt.args),
			time.Time{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecursiveSchema(t *testing.T) {
	tree := spec("t", `{"$defs":{"node":{"type":"object","required":["v"],"properties":{"v":{"type":"integer"},
		"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}}},"$ref":"#/$defs/node"}`)
	schemas := schema.NewValidator()
	if err := schemas.Validate(t.Context(), anyone, tree, []byte(`{"v":1,"children":[{"v":2,"children":[]},{"v":3}]}`),
		time.Time{}); err != nil {
		t.Error(err)
	}
	e := wantCode(t, schemas.Validate(t.Context(), anyone, tree, []byte(`{"v":1,"children":[{"v":2,"children":[{}]}]}`),
		time.Time{}), registry.CodeInvalidArguments)
	if e.Violations[0].Pointer != "/children/0/children/0" {
		t.Errorf("violations %+v", e.Violations)
	}
	deep := strings.Repeat(`{"v":1,"children":[`, 30) + strings.Repeat(`]}`, 30)
	if err := schemas.Validate(t.Context(), anyone, tree, []byte(deep), time.Time{}); err != nil {
		t.Error(err)
	}
}

// The cache is shared by all sockets.
func TestSchemasConcurrently(t *testing.T) {
	schemas := schema.NewValidator()
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for j := range 100 {
				s := spec("t", fmt.Sprintf(`{"properties":{"a":{"maximum":%d}}}`, j%10))
				if err := schemas.Validate(t.Context(), anyone, s, []byte(`{"a":0}`), time.Time{}); err != nil {
					t.Errorf("worker %d: %v", i, err)
				}
				if err := schemas.Validate(t.Context(), anyone, s, []byte(`{"a":11}`), time.Time{}); err == nil {
					t.Errorf("worker %d: a schema was taken for another", i)
				}
			}
		})
	}
	work.Wait()
}

func wantCode(t *testing.T, err error, code registry.Code) *registry.Error {
	t.Helper()
	e := registry.AsError(err)
	if err == nil || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return e
}

// What is registered is checked once, and not kept: a pod has many more tools than are called there.
func TestARegisteredSchemaIsNotKeptCompiled(t *testing.T) {
	const n, perSchema = 500, 1500 // bytes; compiled, one takes several kilobytes
	schemas := schema.NewValidator()
	parameters := func(i int) string {
		return fmt.Sprintf(`{"properties":{"a":{"type":"string","description":"%d"},"b":{"minimum":%d}}}`, i, i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		if err := compile(t, schemas, parameters(i)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n*perSchema {
		t.Errorf("%d schemas that were registered keep %d bytes", n, kept)
	}
	if !schemas.Known([]byte(parameters(0))) || schemas.Known([]byte(parameters(n))) {
		t.Error("what is known is not what was registered")
	}
	allocated := testing.AllocsPerRun(10, func() { _ = compile(t, schemas, parameters(1)) })
	if allocated > 20 {
		t.Errorf("a schema that is known is checked again: %.0f allocations", allocated)
	}
	runtime.KeepAlive(schemas)
}
