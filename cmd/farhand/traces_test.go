package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/otlp/otlptest"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// Headers of a caller with a trace of its own.
const (
	callersTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan   = "00f067aa0ba902b7"
	callersParent = "00-" + callersTrace + "-" + callersSpan + "-01"
)

// tracedRequest is a request of such a caller.
func tracedRequest(t testing.TB, url, body, parent string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+fleetToken)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", parent)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// tracingDevice is a device whose tool echo keeps the headers of its calls.
type tracingDevice struct {
	mu      sync.Mutex
	parents []string
}

func (d *tracingDevice) tool() client.Option {
	return client.WithTool(client.Tool{Name: "echo"}, func(_ context.Context, call client.Call) (any, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.parents = append(d.parents, call.Traceparent)
		return string(call.Args), nil
	})
}

func (d *tracingDevice) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parents[len(d.parents)-1]
}

// otlpSettings are the variables of a pod that exports all spans soon.
func otlpSettings(c *otlptest.Collector, protocol string) []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol, "OTEL_BSP_SCHEDULE_DELAY=20",
	}
}

// TestOneTraceOverPodsDeviceAndModel: a turn on one pod, whose model calls a device of another pod, is one trace. The
// pods export over different protocols.
func TestOneTraceOverPodsDeviceAndModel(t *testing.T) {
	t.Parallel()
	collector := otlptest.New(t)
	model := scripted.OpenAI(t,
		scripted.Reply(scripted.Calls(scripted.Call{Name: "echo", Args: `{"n":1}`})),
		scripted.Reply(scripted.Text("done")))
	redis := "FARHAND_REDIS_URL=" + redistest.Single(t)
	settings := append(agentSettings(providerOpenAI, model), redis, redisMayStall, "FARHAND_LOG_LEVEL=info",
		"FARHAND_ACCESS_LOG=all")
	a := startPod(t, append(otlpSettings(collector, "http/protobuf"), settings...)...)
	b := startPod(t, append(otlpSettings(collector, "grpc"), settings...)...)
	device := new(tracingDevice)
	connectDevice(t, b.url, "phone", device.tool())

	status, answer := tracedRequest(t, a.url+"/api/sessions/phone/messages", `{"content":"hello"}`, callersParent)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	var turn struct {
		Calls []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(answer, &turn); err != nil || len(turn.Calls) != 1 {
		t.Fatalf("%v: %s", err, answer)
	}

	const root = "POST /api/sessions/:id/messages"
	names := []string{root, "invoke_agent farhand", "chat " + modelName, "execute_tool echo", "admit",
		"send call", "device echo"}
	var byName map[string]otlptest.Span
	defer func() {
		if t.Failed() {
			t.Logf("spans: %v", slices.Sorted(maps.Keys(byName)))
		}
	}()
	eventually(t, waitLimit, "the whole trace", func() bool {
		byName = spansByName(collector.Spans(), callersTrace)
		return !slices.ContainsFunc(names, func(name string) bool { _, ok := byName[name]; return !ok })
	})
	for child, parent := range map[string]string{
		"invoke_agent farhand": root, "chat " + modelName: "invoke_agent farhand",
		"execute_tool echo": "invoke_agent farhand", "admit": "execute_tool echo", "send call": "execute_tool echo",
		"device echo": "send call",
	} {
		if byName[child].Parent != byName[parent].ID {
			t.Errorf("the parent of %q is not %q", child, parent)
		}
	}
	if byName[root].Parent != callersSpan {
		t.Errorf("the parent of the request is %q", byName[root].Parent)
	}
	if podOf(byName["device echo"]) != b.id || podOf(byName[root]) != a.id {
		t.Errorf("pods %q and %q", podOf(byName[root]), podOf(byName["device echo"]))
	}
	if want := "00-" + callersTrace + "-" + byName["device echo"].ID + "-01"; device.last() != want {
		t.Errorf("the device got %q, want %q", device.last(), want)
	}
	for _, r := range model.Requests() {
		if !strings.HasPrefix(r.Header.Get("Traceparent"), "00-"+callersTrace+"-") {
			t.Errorf("the model got %q", r.Header.Get("Traceparent"))
		}
	}
	chat := byName["chat "+modelName].Attributes
	for key, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": modelName,
		"gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": "5",
	} {
		if chat[key] != want {
			t.Errorf("chat: %s is %q, want %q", key, chat[key], want)
		}
	}
	collector.CheckDocumented(t, "../../docs/traces.md")
	checkPointers(t, a, turn.Calls[0].ID)
	if strings.Contains(fmt.Sprint(collector.Spans()), "hello") {
		t.Error("a span has content of the conversation")
	}
}

func podOf(s otlptest.Span) string { return s.Attributes["farhand.pod"] }

func spansByName(all []otlptest.Span, id string) map[string]otlptest.Span {
	byName := make(map[string]otlptest.Span)
	for _, s := range all {
		if s.Trace == id {
			byName[s.Name] = s
		}
	}
	return byName
}

// checkPointers checks that the record, an error, the log and the metrics of a pod name traces.
func checkPointers(t testing.TB, p *pod, call string) {
	t.Helper()
	var record struct {
		TraceID string `json:"trace_id"`
	}
	eventually(t, waitLimit, "the record", func() bool {
		status, body := request(t, http.MethodGet, p.url+"/api/calls/"+call, "")
		return status == http.StatusOK && json.Unmarshal(body, &record) == nil
	})
	if record.TraceID != callersTrace {
		t.Errorf("the record has the trace %q", record.TraceID)
	}
	_, problem := tracedRequest(t, p.url+"/api/tools/nothing/call", `{}`, callersParent)
	if !strings.Contains(string(problem), `"trace_id":"`+callersTrace+`"`) {
		t.Errorf("the problem is %s", problem)
	}
	eventually(t, waitLimit, "a line of the log with the trace", func() bool {
		return strings.Contains(p.out.String(), `"trace_id":"`+callersTrace+`"`)
	})
	r, err := http.NewRequest(http.MethodGet, p.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+fleetToken)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`trace_id="` + callersTrace + `"`, `farhand_trace_spans_total{outcome="exported"}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestCallersCannotForceTraces: the mark "sampled" of callers is honored up to a bound, and neither a chosen id, nor a
// long or malformed header gets around the sampler.
func TestCallersCannotForceTraces(t *testing.T) {
	t.Parallel()
	for _, sampler := range []string{"parentbased_traceidratio", "traceidratio"} {
		t.Run(sampler, func(t *testing.T) {
			t.Parallel()
			collector := otlptest.New(t)
			p := startPod(t, append(otlpSettings(collector, "http/protobuf"), "OTEL_TRACES_SAMPLER="+sampler,
				"OTEL_TRACES_SAMPLER_ARG=0")...)
			const requests, honored = 700, 100
			for i := range requests {
				// The id 0…01 is below every ratio.
				parent := fmt.Sprintf("00-%024x%08x-%016x-01", 0, i+1, i+1)
				if i%70 == 69 {
					parent += strings.Repeat("-x", 1<<12)
				}
				tracedRequest(t, p.url+"/api/tools/nothing/call", `{}`, parent)
			}
			p.signal(syscall.SIGTERM) // it exports what is queued
			if code := p.exit(t); code != 0 {
				t.Errorf("exit code %d: %s", code, p.out)
			}
			traces := make(map[string]bool)
			for _, s := range collector.Spans() {
				traces[s.Trace] = true
			}
			// 10 a second come to the burst of 100. Requests of this test take well below a minute.
			if n := len(traces); n > 4*honored {
				t.Errorf("%d of %d traces were recorded", n, requests)
			} else if sampler == "parentbased_traceidratio" && n < honored {
				t.Errorf("only %d traces were recorded", n)
			} else if sampler == "traceidratio" && n > 0 {
				t.Errorf("%d traces of a sampler that samples none", n)
			}
		})
	}
}
