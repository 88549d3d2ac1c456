// Package otlp records spans with OpenTelemetry's SDK and sends them to a collector by OTLP, over HTTP or gRPC.
// Sampling, limits of spans and ids are the SDK's. The exporter is the gateway's own, because OpenTelemetry's would add
// 8 MB to the binary, most of it gRPC (docs/decisions/0079-traces.md).
//
//	span ends ─▶ queue, bounded ─▶ one goroutine ─▶ batch ─▶ encode ─▶ sender, with retries ─▶ collector
//
// Ending a span never waits: if the queue is full, the span is dropped and counted. Start at Open.
package otlp

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	tracing "github.com/farhand/farhand/internal/trace"
)

// Provider records and exports spans. It is an OpenTelemetry TracerProvider, safe for concurrent use.
type Provider struct {
	*trace.TracerProvider
	cfg      Config
	version  string
	resource []attribute.KeyValue
	sender   *sender
	log      *slog.Logger

	queue                                chan trace.ReadOnlySpan
	exported, rejected, failed, overflow atomic.Int64

	stop    context.CancelFunc // ends the export that is running
	closing chan struct{}
	close   func()
	done    sync.WaitGroup
}

// Open starts exporting the spans of a program of that version. c must be On. The caller must call Close.
func Open(c Config, version string, log *slog.Logger) *Provider {
	p := &Provider{
		cfg: c, version: version, sender: newSender(c), log: log, queue: make(chan trace.ReadOnlySpan, c.maxQueue),
		closing: make(chan struct{}),
	}
	p.close = sync.OnceFunc(func() { close(p.closing) })
	p.resource = append([]attribute.KeyValue{
		attribute.String("service.name", c.service),
		attribute.String("service.version", version),
		attribute.String("service.instance.id", uuid.NewString()),
		attribute.String("telemetry.sdk.name", "opentelemetry"),
		attribute.String("telemetry.sdk.language", "go"),
		attribute.String("telemetry.sdk.version", sdk.Version()),
	}, c.resource...)
	p.TracerProvider = trace.NewTracerProvider(
		trace.WithSampler(c.sampler), trace.WithSpanProcessor(processor{p}),
		trace.WithResource(resource.NewSchemaless(p.resource...)),
		trace.WithRawSpanLimits(trace.SpanLimits{
			AttributeValueLengthLimit: 1 << 10, AttributeCountLimit: 32, EventCountLimit: 8, LinkCountLimit: 8,
			AttributePerEventCountLimit: 8, AttributePerLinkCountLimit: 8,
		}),
	)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.done.Go(func() { p.run(ctx) })
	return p
}

// Close exports the spans that are queued, within ctx, and stops. Spans that end later are dropped.
func (p *Provider) Close(ctx context.Context) {
	defer context.AfterFunc(ctx, p.stop)()
	defer p.stop()
	p.close()
	p.done.Wait()
	p.sender.client.CloseIdleConnections()
}

// Stats returns the counters.
func (p *Provider) Stats() tracing.Stats {
	return tracing.Stats{
		Exported: p.exported.Load(), Rejected: p.rejected.Load(), Failed: p.failed.Load(), Overflow: p.overflow.Load(),
	}
}

// processor is the SDK's view of a Provider.
type processor struct{ p *Provider }

func (processor) OnStart(context.Context, trace.ReadWriteSpan) {}

func (o processor) OnEnd(s trace.ReadOnlySpan) {
	select {
	case o.p.queue <- s:
	default:
		o.p.overflow.Add(1)
	}
}

func (o processor) Shutdown(ctx context.Context) error {
	o.p.Close(ctx)
	return nil
}

func (processor) ForceFlush(context.Context) error { return nil }

// run exports batches until the provider closes, and then what is queued.
func (p *Provider) run(ctx context.Context) {
	tick := time.NewTicker(p.cfg.delay)
	defer tick.Stop()
	batch := make([]trace.ReadOnlySpan, 0, p.cfg.maxBatch)
	flush := func() {
		if len(batch) > 0 {
			p.export(ctx, batch)
			clear(batch) // so that it does not keep the spans
			batch = batch[:0]
		}
	}
	for {
		select {
		case s := <-p.queue:
			if batch = append(batch, s); len(batch) == cap(batch) {
				flush()
			}
			continue
		case <-tick.C:
			flush()
			continue
		case <-p.closing:
		}
		for {
			select {
			case s := <-p.queue:
				if batch = append(batch, s); len(batch) == cap(batch) {
					flush()
				}
				continue
			default:
			}
			flush()
			return
		}
	}
}

func (p *Provider) export(ctx context.Context, batch []trace.ReadOnlySpan) {
	n := int64(len(batch))
	rejected, err := p.sender.send(ctx, encode(p.resource, p.version, batch))
	if err != nil {
		if p.failed.Add(n) == n { // the first time; the metric has the rest
			p.log.Warn("traces not exported; farhand_trace_spans_total counts those that follow", "spans", n,
				"error", err)
		}
		return
	}
	rejected = min(max(rejected, 0), n)
	p.rejected.Add(rejected)
	p.exported.Add(n - rejected)
}

// ownIDs is a sampler that decides by the id of a trace, but not by one that a caller has chosen: it could choose one
// that is always sampled.
type ownIDs struct{ trace.Sampler }

func (s ownIDs) ShouldSample(p trace.SamplingParameters) trace.SamplingResult {
	if p.Kind == api.SpanKindServer && api.SpanContextFromContext(p.ParentContext).IsRemote() {
		for i := range p.TraceID {
			p.TraceID[i] = byte(rand.Uint32())
		}
	}
	return s.Sampler.ShouldSample(p)
}
