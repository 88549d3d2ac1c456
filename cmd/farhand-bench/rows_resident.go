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
	residentBytes    = 13 * kib         // at most, each
	residentSettle   = 20 * time.Second // for the pod to come to rest; nobody asks it to collect its garbage

	shapeSessions = 2000
	shapeTools    = 100
	shapes        = 1000
	shapeBytes    = 16 * kib // at most, each session: what it has beside an ordinary one are its places in the lists

	definitions      = 10_000
	definitionsBytes = 64 << 20 // at most, all of them, in the pod that has the devices and in the one that calls them
)

// residents returns the resident set of each pod of a fleet, as the operating system reports it.
func (f *fleet) residents(ctx context.Context) ([]float64, error) {
	list := make([]float64, len(f.pods))
	for i, p := range f.pods {
		n, err := bench.ResidentBytes(ctx, p.pid())
		if err != nil {
			return nil, err
		}
		list[i] = float64(n)
	}
	return list, nil
}

// residentsAtRest returns the same once the pods have come to rest with the devices, all of which must have stayed.
func (l *lab) residentsAtRest(ctx context.Context, f *fleet, devices *bench.Swarm) ([]float64, error) {
	select {
	case <-time.After(quickOr(l.options, quickSettle, residentSettle)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := f.residents(ctx)
	return after, errors.Join(err, devices.Lost())
}

// startSettled starts a fleet and returns it with the resident sets it has before there is a device.
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

// rowResident: what the resident set of a fresh pod grows by with every idle session, and that of a fresh reference.
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
			"nobody asked for a collection", quickOr(l.options, quickSettle, residentSettle)),
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
	for i, pod := range f.pods { // one after the other: one process has no room for the devices of both
		after, err := l.residentWith(ctx, f, pod, sessions)
		if err != nil {
			return nil, err
		}
		each[i] = (after[i] - before[i]) / float64(sessions)
	}
	return each, nil
}

// residentWith returns the resident sets while idle devices are connected to a pod.
func (l *lab) residentWith(ctx context.Context, f *fleet, pod *child, sessions int) ([]float64, error) {
	devices, err := bench.ConnectSwarm(ctx, pod.url, benchToken, "resident", sessions, idleTools)
	if err != nil {
		return nil, err
	}
	defer devices.Close()
	return l.residentsAtRest(ctx, f, devices)
}

// shapeNames are the names of tools from one of the shapes on, each a definition of its own.
func shapeNames(first, n, of int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("shape_%05d", (first+i)%of)
	}
	return names
}

// rowShapes: sessions with many tools, of which many sessions have some and no two need have all.
func rowShapes(ctx context.Context, l *lab) ([]verdict, error) {
	sessions := quickOr(l.options, 50, shapeSessions)
	f, before, err := l.startSettled(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer f.close()
	devices, err := bench.ConnectSwarmWith(ctx, f.pods[0].url, benchToken, "shapes", sessions, func(i int) []byte {
		const apart = 7919 // a prime: sessions one after the other begin far from one another
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

// rowDefinitions: every tool of every device is unlike any other, and each is called once from another pod, so that
// both pods have seen all of them.
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
