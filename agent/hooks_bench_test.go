package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// benchSpecs are tools with simpler and less simple schemas.
func benchSpecs(b *testing.B) map[string]registry.ToolSpec {
	specs := make(map[string]registry.ToolSpec)
	for name, parameters := range map[string]string{
		"empty": `{"type":"object"}`,
		"flat": `{"type":"object","properties":{"what":{"type":"string","minLength":1},"limit":{"type":"integer",` +
			`"minimum":1,"maximum":100}},` +
			`"required":["what"],"additionalProperties":false}`,
		"nested": `{"type":"object","properties":{"filter":{"type":"object","properties":{"tags":{"type":"array",` +
			`"maxItems":20,` +
			`"items":{"type":"string","pattern":"^[a-z]+$"}},"range":{"$ref":"#/$defs/range"}}}},` +
			`"$defs":{"range":{"type":"object",` +
			`"properties":{"from":{"type":"number"},"to":{"type":"number"}},"required":["from","to"]}}}`,
	} {
		spec, err := registry.ToolSpec{Name: "tool_" + name, Parameters: json.RawMessage(parameters)}.Normalize()
		if err != nil {
			b.Fatal(err)
		}
		specs[name] = spec
	}
	return specs
}

var benchArgs = map[string]string{
	"empty":  `{}`,
	"flat":   `{"what":"contacts","limit":20}`,
	"nested": `{"filter":{"tags":["red","green","blue"],"range":{"from":1.5,"to":7}}}`,
}

// BenchmarkSchemaValidate checks arguments against schemas that are compiled already.
func BenchmarkSchemaValidate(b *testing.B) {
	schemas := schema.NewValidator()
	for name, spec := range benchSpecs(b) {
		args := []byte(benchArgs[name])
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := schemas.Validate(b.Context(), share.Owner{}, spec, args, time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, n := range []int{10_000, 1_000_000} {
		spec, args := benchSpecs(b)["empty"], []byte(`{"text":"`+strings.Repeat("x", n)+`"}`)
		b.Run(fmt.Sprintf("text_%dKB", n/1000), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := schemas.Validate(b.Context(), share.Owner{}, spec, args, time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSchemaCompile is what the first registration of a content costs.
func BenchmarkSchemaCompile(b *testing.B) {
	for name, spec := range benchSpecs(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schema.NewValidator().Compile(b.Context(), share.Owner{}, spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchHook lets everything pass and observes nothing.
type benchHook struct{}

func (benchHook) Name() string { return "bench" }

func (benchHook) Before(context.Context, Invocation) (Decision, error) { return Pass(), nil }

func (benchHook) After(context.Context, Invocation, Outcome, error) {}

// BenchmarkHooks runs the pipeline around a call: custom hooks, validation; then what observes the end.
func BenchmarkHooks(b *testing.B) {
	for _, custom := range []int{0, 3} {
		var hooks pipeline
		for range custom {
			hooks = append(hooks, benchHook{})
		}
		hooks = append(hooks, validation{schema.NewValidator()})
		spec, log := benchSpecs(b)["flat"], slog.New(slog.DiscardHandler)
		b.Run(fmt.Sprintf("custom_%d", custom), func(b *testing.B) {
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				inv := Invocation{CallID: "id", Spec: spec, Args: registry.MustJSON(string(benchArgs["flat"]))}
				if err := hooks.before(ctx, log, &inv); err != nil {
					b.Fatal(err)
				}
				hooks.after(ctx, log, &inv, Outcome{}, nil)
			}
		})
	}
}
