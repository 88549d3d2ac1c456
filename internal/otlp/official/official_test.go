// Package official compares the exporter with OpenTelemetry's own types and with gRPC's own server. It is a module of
// its own, because both would otherwise be in the gateway's go.mod.
//
//	go test -C internal/otlp/official
package official

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/farhand/farhand/internal/otlp"
	"github.com/farhand/farhand/internal/otlp/otlptest"
	"github.com/farhand/farhand/internal/trace"
)

const callersParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// server is a collector of OpenTelemetry's types. Its first answer over gRPC is that it is unavailable.
type server struct {
	collector.UnimplementedTraceServiceServer

	mu       sync.Mutex
	requests []*collector.ExportTraceServiceRequest
	header   metadata.MD
	tries    int
}

func (s *server) Export(
	ctx context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries++; s.tries == 1 {
		return nil, status.Error(codes.Unavailable, "try again")
	}
	s.header, _ = metadata.FromIncomingContext(ctx)
	s.requests = append(s.requests, r)
	return &collector.ExportTraceServiceResponse{
		PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "one too many"},
	}, nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" && err == nil {
		var in *gzip.Reader
		if in, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(in)
		}
	}
	request := new(collector.ExportTraceServiceRequest)
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{
		PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1},
	})
	_, _ = w.Write(answer)
}

func (s *server) overGRPC(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	collector.RegisterTraceServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return "http://" + l.Addr().String()
}

func (s *server) overHTTP(t *testing.T) string {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL
}

// TestSpansAreReadByOfficialTypes over both protocols, with and without compression.
func TestSpansAreReadByOfficialTypes(t *testing.T) {
	for protocol, start := range map[string]func(*server, *testing.T) string{
		"grpc": (*server).overGRPC, "http/protobuf": (*server).overHTTP,
	} {
		for _, compression := range []string{"none", "gzip"} {
			t.Run(protocol+" "+compression, func(t *testing.T) {
				s := new(server)
				c, err := otlp.LoadConfig([]string{
					"OTEL_EXPORTER_OTLP_ENDPOINT=" + start(s, t), "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol,
					"OTEL_EXPORTER_OTLP_COMPRESSION=" + compression, "OTEL_EXPORTER_OTLP_HEADERS=x-key=a",
				})
				if err != nil {
					t.Fatal(err)
				}
				p := otlp.Open(c, "v1", slog.New(slog.DiscardHandler))
				record(p)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				p.Close(ctx)
				if stats := p.Stats(); stats != (trace.Stats{Exported: 2, Rejected: 1}) {
					t.Errorf("counted %+v", stats)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if protocol == "grpc" && (s.tries != 2 || len(s.header.Get("x-key")) != 1) {
					t.Errorf("%d tries, header %v", s.tries, s.header)
				}
				check(t, s.requests)
			})
		}
	}
}

// record records a request with a step, and one whose caller may not mark its trace.
func record(p *otlp.Provider) {
	tracer := trace.New(p)
	ctx, root := tracer.Serve(context.Background(), trace.Server, "request", callersParent, "vendor=1",
		func() bool { return true })
	_, step := trace.Start(ctx, trace.Client, "chat", "gpt")
	step.Text(trace.Model, "gpt").Number(trace.InputCount, 1<<40).Texts(trace.Finish, "stop").End("limit")
	root.End("")
	_, anew := tracer.Serve(context.Background(), trace.Server, "request", callersParent, "",
		func() bool { return false })
	anew.End("")
}

func check(t *testing.T, requests []*collector.ExportTraceServiceRequest) {
	t.Helper()
	if len(requests) != 1 || len(requests[0].ResourceSpans) != 1 || len(requests[0].ResourceSpans[0].ScopeSpans) != 1 {
		t.Fatalf("%d requests: %v", len(requests), requests)
	}
	if unknown := requests[0].ProtoReflect().GetUnknown(); len(unknown) > 0 {
		t.Errorf("unknown fields: %x", unknown)
	}
	scope := requests[0].ResourceSpans[0].ScopeSpans[0]
	step, root, anew := scope.Spans[0], scope.Spans[1], scope.Spans[2]
	if scope.Scope.Name != trace.Scope || hex.EncodeToString(step.TraceId) != callersParent[3:35] ||
		!bytes.Equal(step.ParentSpanId, root.SpanId) || hex.EncodeToString(root.ParentSpanId) != callersParent[36:52] ||
		step.TraceState != "vendor=1" || step.Kind != traces.Span_SPAN_KIND_CLIENT || step.Name != "chat gpt" ||
		step.Status.Code != traces.Status_STATUS_CODE_ERROR || step.EndTimeUnixNano < step.StartTimeUnixNano {
		t.Errorf("step %v\nroot %v", step, root)
	}
	const remote = uint32(traces.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	if root.Flags&remote == 0 || step.Flags&remote != 0 || root.Flags&1 == 0 {
		t.Errorf("flags %b and %b", root.Flags, step.Flags)
	}
	values := make(map[string]any)
	for _, a := range step.Attributes {
		values[a.Key] = a.Value
		switch trace.Key(a.Key) {
		case trace.InputCount:
			if a.Value.GetIntValue() != 1<<40 {
				t.Errorf("%v", a)
			}
		case trace.Finish:
			if all := a.Value.GetArrayValue().GetValues(); len(all) != 1 || all[0].GetStringValue() != "stop" {
				t.Errorf("%v", a)
			}
		}
	}
	if len(values) != 4 { // with error.type
		t.Errorf("attributes %v", values)
	}
	if len(anew.ParentSpanId) != 0 || len(anew.Links) != 1 ||
		hex.EncodeToString(anew.Links[0].TraceId) != callersParent[3:35] {
		t.Errorf("a trace that began anew: %v", anew)
	}
	text, err := proto.Marshal(requests[0])
	if err != nil {
		t.Fatal(err)
	}
	if read := otlptest.Decode(text); len(read) != 3 || read[0].Name != "chat gpt" || len(read[2].Links) != 1 {
		t.Errorf("the decoder of the tests reads %+v", read)
	}
}
