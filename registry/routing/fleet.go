package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Limits of a question to the fleet.
const (
	summaryWait   = time.Second       // for the answers
	summaryFresh  = time.Second       // answers are reused for later questions
	maxSummary    = 8 << 10           // bytes; a longer summary is dropped
	maxAskedPods  = 250               // of a fleet
	summaryTenant = "farhand:summary" // whose share of the pod's tasks makes summaries
)

// questionPrefix is the prefix of the ids of questions between pods.
const questionPrefix = "summary-"

// Fleet asks all pods how they are. A pod makes a summary only when it is asked. Fleet is safe for concurrent use.
type Fleet struct {
	core
	answers listeners[string]

	asking sync.Mutex            // one question at a time; guards last
	last   []registry.PodSummary // answers of the last second

	mu        sync.Mutex
	summarize func() []byte
}

// Serve sets the function that summarizes this pod, in at most 8 KiB. It is called once per question, concurrently.
func (f *Fleet) Serve(summarize func() []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.summarize = summarize
}

// Ask returns the live pods, sorted, with their summaries. It waits at most a second for the answers, and returns those
// of an earlier question if they are not older than a second. A pod that did not answer has no summary.
func (f *Fleet) Ask(ctx context.Context) ([]registry.PodSummary, error) {
	f.asking.Lock()
	defer f.asking.Unlock()
	if f.last != nil {
		return f.last, nil
	}
	pods, err := f.store.Live(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(pods)
	pods = pods[:min(len(pods), maxAskedPods)]
	f.last = f.ask(context.WithoutCancel(ctx), pods) // others also get these answers
	time.AfterFunc(summaryFresh, func() {
		f.asking.Lock()
		defer f.asking.Unlock()
		f.last = nil
	})
	return f.last, nil
}

func (f *Fleet) ask(ctx context.Context, pods []string) []registry.PodSummary {
	ctx, cancel := context.WithTimeout(ctx, summaryWait)
	defer cancel()
	all := make([]registry.PodSummary, len(pods))
	var asked sync.WaitGroup
	for i, pod := range pods {
		all[i].Pod = pod
		if pod == f.pod {
			all[i].Summary = f.summary()
			continue
		}
		asked.Go(func() { all[i].Summary = f.askPod(ctx, pod) })
	}
	asked.Wait()
	return all
}

// askPod returns the summary of another pod, nil if it does not answer.
func (f *Fleet) askPod(ctx context.Context, pod string) []byte {
	id := questionPrefix + uuid.NewString()
	answer, stop := f.answers.listen(id, 1)
	defer stop()
	err := f.send(ctx, pod, registry.Envelope{Kind: registry.EnvelopeSummary, CallID: id, ReplyTo: f.pod})
	if err != nil {
		return nil
	}
	select {
	case text := <-answer:
		return []byte(text) // empty from a release that does not know the question
	case <-ctx.Done():
		return nil
	}
}

// handleQuestion answers another pod. A summary visits every session, so it is not made by the bus's goroutine.
func (f *Fleet) handleQuestion(e registry.Envelope) {
	f.tasks.start(share.Owner{Tenant: summaryTenant}, func(context.Context) {
		f.tryReply(e.ReplyTo, registry.Reply{CallID: e.CallID, Answer: string(f.summary())})
	})
}

func (f *Fleet) summary() []byte {
	f.mu.Lock()
	summarize := f.summarize
	f.mu.Unlock()
	if summarize == nil {
		return nil
	}
	text := summarize()
	if len(text) > maxSummary {
		f.log.Warn("summary of this pod is too long", "bytes", len(text))
		return nil
	}
	return text
}

// Survey asks all live pods how they are, as Fleet.Ask does, for a process that is no pod. It listens on the bus, which
// must be new, and which the caller closes.
func Survey(ctx context.Context, store registry.PodStore, bus registry.Bus) ([]registry.PodSummary, error) {
	pods, err := store.Live(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(pods)
	pods = pods[:min(len(pods), maxAskedPods)]
	asker := surveyor{me: "survey-" + uuid.NewString(), bus: bus}
	if err := bus.Listen(ctx, asker.me, &asker); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, summaryWait)
	defer cancel()
	all := make([]registry.PodSummary, len(pods))
	var asked sync.WaitGroup
	for i, pod := range pods {
		all[i].Pod = pod
		asked.Go(func() { all[i].Summary = asker.ask(ctx, pod) })
	}
	asked.Wait()
	return all, nil
}

// surveyor is the receiver of the answers to a survey.
type surveyor struct {
	me      string
	bus     registry.Bus
	answers listeners[string]
}

func (s *surveyor) ask(ctx context.Context, pod string) []byte {
	id := questionPrefix + uuid.NewString()
	answer, stop := s.answers.listen(id, 1)
	defer stop()
	question := registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeSummary, CallID: id, ReplyTo: s.me,
	}
	if err := s.bus.Send(ctx, pod, question); err != nil {
		return nil
	}
	select {
	case text := <-answer:
		return []byte(text)
	case <-ctx.Done():
		return nil
	}
}

// HandleReply implements registry.BusHandler.
func (s *surveyor) HandleReply(r registry.Reply) { s.answers.notify(r.CallID, r.Answer) }

// HandleEnvelope implements registry.BusHandler. Pods do not know of a surveyor, so none sends it work.
func (s *surveyor) HandleEnvelope(registry.Envelope) {}

// HandleGap implements registry.BusHandler.
func (s *surveyor) HandleGap() {}
