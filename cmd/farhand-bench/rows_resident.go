package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

const (
	kib = 1 << 10

	residentSessions = 10_000
	residentBytes    = 13 * kib         // maximum of each
	residentSettle   = 20 * time.Second // for the pod to settle, without a forced garbage collection

	shapeSessions = 2000
	shapeTools    = 100
	shapes        = 1000
	shapeBytes    = 16 * kib // maximum of each session: more than an ordinary one by its places in the lists

	definitions      = 10_000
	definitionsBytes = 64 << 20 // maximum of all, in the pod with the devices and in the calling pod
)

// residents returns the resident memory of each pod of a fleet, as the operating system reports it.
func (f *fleet) residents(ctx context.Context) ([]float64, error) {
	list := make([]float64, len(f.pods))
	for i, p := range f.pods {
		use, err := bench.ReadProcess(ctx, p.pid())
		if err != nil {
			return nil, err
		}
		list[i] = float64(use.Resident)
	}
	return list, nil
}

// residentsAtRest returns the same after the pods have settled with the devices, all of which must still be connected.
func (l *lab) residentsAtRest(ctx context.Context, f *fleet, devices *bench.Swarm) ([]float64, error) {
	select {
	case <-time.After(quickOr(l.options, quickSettle, residentSettle)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := f.residents(ctx)
	return after, errors.Join(err, devices.Lost())
}

// startSettled starts a fleet and returns it with its resident memory before devices connect.
func (l *lab) startSettled(ctx context.Context, pods int) (*fleet, []float64, error) {
	f, err := l.startFleet(ctx, pods)
	if err != nil {
		return nil, nil, err
	}
	time.Sleep(f.settle)
	before, err := f.residents(ctx)
	if err != nil {
		f.close()
		return nil, nil, err
	}
	return f, before, nil
}

// rowResident measures by how much the resident memory of a fresh pod grows with each idle session, and that of a fresh
// reference.
func rowResident(ctx context.Context, l *lab) ([]verdict, error) {
	sessions := quickOr(l.options, 100, residentSessions)
	var runs [][]float64 // of the pod, of the reference: bytes for each session
	for range min(l.Repeat, slowRepeat) {
		each, err := l.residentOnce(ctx, sessions)
		if err != nil {
			return nil, err
		}
		l.Step("%d idle sessions: %.1f KiB resident each, the reference's %.1f", sessions, each[0]/kib, each[1]/kib)
		runs = append(runs, each)
	}
	ours := bench.MedianOf(runs, func(each []float64) float64 { return each[0] })
	reference := bench.MedianOf(runs, func(each []float64) float64 { return each[1] })
	return []verdict{{
		What:   fmt.Sprintf("resident memory per idle session with five tools, %d sessions", sessions),
		Target: "≤ 13 KiB", Met: ours <= residentBytes,
		Measured: fmt.Sprintf("%.1f KiB (the reference %.1f)", ours/kib, reference/kib),
		Detail: fmt.Sprintf("growth of the resident set of a fresh process, %v after the last one connected; "+
			"without a forced collection", quickOr(l.options, quickSettle, residentSettle)),
	}}, nil
}

func (l *lab) residentOnce(ctx context.Context, sessions int) ([]float64, error) {
	f, err := l.startFleet(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if _, err := f.addReferences(ctx, 1, true); err != nil {
		return nil, err
	}
	time.Sleep(f.settle)
	before, err := f.residents(ctx)
	if err != nil {
		return nil, err
	}
	each := make([]float64, len(f.pods))
	for i, pod := range f.pods { // one after the other: one process cannot hold the devices of both
		after, err := l.residentWith(ctx, f, pod, sessions)
		if err != nil {
			return nil, err
		}
		each[i] = (after[i] - before[i]) / float64(sessions)
	}
	return each, nil
}

// residentWith returns the resident memory while idle devices are connected to a pod.
func (l *lab) residentWith(ctx context.Context, f *fleet, pod *child, sessions int) ([]float64, error) {
	devices, err := bench.ConnectSwarm(ctx, pod.url, benchToken, "resident", sessions, idleTools)
	if err != nil {
		return nil, err
	}
	defer devices.Close()
	return l.residentsAtRest(ctx, f, devices)
}

// shapeNames returns n names of tools, starting with the given shape. Each is a separate definition.
func shapeNames(first, n, of int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("shape_%05d", (first+i)%of)
	}
	return names
}

// rowShapes measures sessions with many tools. Many sessions share each tool, but no two need share all.
func rowShapes(ctx context.Context, l *lab) ([]verdict, error) {
	sessions := quickOr(l.options, 50, shapeSessions)
	f, before, err := l.startSettled(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer f.close()
	devices, err := bench.ConnectSwarmWith(ctx, f.pods[0].url, benchToken, "shapes", sessions, func(i int) []byte {
		const apart = 7919 // a prime: consecutive sessions begin far from each other
		return bench.RegisterTools(shapeNames(i*apart, shapeTools, shapes))
	})
	if err != nil {
		return nil, err
	}
	defer devices.Close()
	after, err := l.residentsAtRest(ctx, f, devices)
	if err != nil {
		return nil, err
	}
	if err := f.profile("shapes", f.pods, nil); err != nil {
		return nil, err
	}
	each := (after[0] - before[0]) / float64(sessions)
	return []verdict{{
		What:   fmt.Sprintf("the same, %d sessions with %d tools each from %d shapes", sessions, shapeTools, shapes),
		Target: "≤ 16 KiB", Met: each <= shapeBytes,
		Measured: fmt.Sprintf("%.1f KiB", each/kib),
		Detail:   "what the pod keeps of the definitions themselves is in it; Redis has each definition once",
	}}, nil
}

// rowDefinitions measures devices whose tools all differ. Each tool is called once from another pod, so that both pods
// have seen all of them.
func rowDefinitions(ctx context.Context, l *lab) ([]verdict, error) {
	all := quickOr(l.options, 500, definitions)
	f, before, err := l.startSettled(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer f.close()
	names := func(i int) []string { return shapeNames(i*shapeTools, shapeTools, all) }
	devices, err := bench.ConnectSwarmWith(ctx, f.pods[0].url, benchToken, "unlike", all/shapeTools,
		func(i int) []byte { return bench.RegisterTools(names(i)) })
	if err != nil {
		return nil, err
	}
	defer devices.Close()
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(16)
	for i, session := range devices.Sessions() {
		for _, tool := range names(i) {
			calls.Go(func() error { return callOnce(callCtx, f.pods[1].url, session, tool) })
		}
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	after, err := l.residentsAtRest(ctx, f, devices)
	if err != nil {
		return nil, err
	}
	if err := f.profile("definitions", f.pods, nil); err != nil {
		return nil, err
	}
	owning, asking := after[0]-before[0], after[1]-before[1]
	return []verdict{{
		What:   fmt.Sprintf("definitions of %d different shapes, each called once: what both pods grow by", all),
		Target: "≤ 64 MiB each", Met: max(owning, asking) <= definitionsBytes,
		Measured: fmt.Sprintf("%.1f MiB with the devices, %.1f MiB asking", owning/kib/kib, asking/kib/kib),
		Detail:   "resident set; what calls need beside the definitions is in it",
	}}, nil
}

// callOnce calls a tool of a session.
func callOnce(ctx context.Context, url, session, tool string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		url+"/api/sessions/"+session+"/tools/"+tool+"/call", strings.NewReader(`{"args":{"text":"x"}}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+benchToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("call of %s: %s", tool, resp.Status)
	}
	return nil
}
