package routing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// herePods returns two pods of one fleet.
func herePods(t *testing.T) (a, b *routing.Pod) {
	t.Helper()
	store := memory.New(memory.Options{})
	open := func() *routing.Pod {
		bus := store.NewBus()
		p, err := routing.NewPod(routing.PodConfig{Store: store, Bus: bus})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
			defer cancel()
			if err := errors.Join(p.Close(ctx), bus.Close(ctx)); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	return open(), open()
}

// reporter is how a local call says how far it is.
type reporter = func(registry.Report)

// localCall returns a call that needs no device, with its record.
func localCall() registry.Call {
	rec := registry.NewRecord(registry.NewCallID(), "t", "clock", []byte(`{}`))
	rec.Source = registry.SourceLocal
	return registry.Call{ID: rec.CallID, Record: &rec, Timeout: time.Minute}
}

func TestRunHere(t *testing.T) {
	pod, _ := herePods(t)
	c := localCall()
	res, err := pod.Router.RunLocal(t.Context(), c, func(context.Context, reporter) (registry.Result, error) {
		if pod.Stats().Pending != 1 {
			t.Error("nobody would find the call")
		}
		return registry.Result{Success: true, Output: "noon"}, nil
	})
	if err != nil || res.Output != "noon" || pod.Stats().Pending != 0 {
		t.Fatalf("%+v, %v, %d calls left", res, err, pod.Stats().Pending)
	}
	if c.Record.State != registry.StateDelivered || c.Record.Dispatched != registry.DispatchedYes ||
		c.Record.Owner != pod.ID() {
		t.Errorf("record %+v", c.Record)
	}
}

// A call that takes its time is seen from another pod as running, and cancelled from there.
func TestRunHereIsSeenAndCancelled(t *testing.T) {
	pod, other := herePods(t)
	c := localCall()
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := pod.Router.RunLocal(limit, c, func(ctx context.Context, _ reporter) (registry.Result, error) {
		for { // the record is written in batches
			rec, err := other.Calls.Wait(limit, "t", c.ID, 0)
			if err == nil && rec.State == registry.StateRunning {
				break
			}
			if limit.Err() != nil {
				t.Errorf("never seen: %+v, %v", rec, err)
				return registry.Result{}, limit.Err()
			}
		}
		if _, err := other.Calls.Cancel(limit, "t", c.ID); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return registry.Result{}, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || limit.Err() != nil {
		t.Fatal(err)
	}
	pod.Calls.Finish(c.Record, registry.Result{},
		registry.Errorf(registry.CodeCancelled, "stopped").With(registry.DispatchedYes))
	if rec, err := other.Calls.Wait(limit, "t", c.ID, 10*time.Second); err != nil ||
		rec.State != registry.StateCancelled {
		t.Errorf("%+v, %v", rec, err)
	}
}

// A durable call is running in the store before its tool runs, and is not begun once it was cancelled.
func TestRunHereDurable(t *testing.T) {
	pod, _ := herePods(t)
	for _, cancelled := range []bool{false, true} {
		c := localCall()
		c.Durable, c.Record.Mode = true, registry.ModeAsync
		c.Record.TimeoutMS = time.Minute.Milliseconds()
		ran, ended := false, make(chan error, 1)
		_, _, err := pod.Calls.Start(t.Context(), *c.Record, func(ctx context.Context) (registry.Result, error) {
			if cancelled {
				if _, err := pod.Calls.Cancel(ctx, "t", c.ID); err != nil {
					t.Error(err)
				}
			}
			res, err := pod.Router.RunLocal(ctx, c, func(ctx context.Context, _ reporter) (registry.Result, error) {
				rec, err := pod.Calls.Get(ctx, "t", c.ID)
				if ran = true; err != nil || rec.State != registry.StateRunning {
					t.Errorf("while it runs: %+v, %v", rec, err)
				}
				return registry.Result{Success: true}, nil
			})
			ended <- err
			return res, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; ran == cancelled || cancelled != errors.Is(err, registry.CodeCancelled) {
			t.Errorf("cancelled %v: ran %v, %v", cancelled, ran, err)
		}
	}
}

// What a local tool reports is in the log of its call, between its beginning and its end, within the bound of one log.
func TestLocalCallReports(t *testing.T) {
	pod, other := herePods(t)
	c := localCall()
	_, _, err := pod.Calls.Start(t.Context(), *c.Record, func(ctx context.Context) (registry.Result, error) {
		c.Durable = true
		return pod.Router.RunLocal(ctx, c, func(_ context.Context, say reporter) (registry.Result, error) {
			done, all := 0.5, 2.0
			say(registry.Report{Chunk: "one\n"})
			say(registry.Report{})
			say(registry.Report{Message: "half way"})
			say(registry.Report{Progress: &done, Total: &all})
			say(registry.Report{Chunk: strings.Repeat("x", routing.DefaultCallLog)})
			say(registry.Report{Chunk: "never"})
			return registry.Result{Success: true}, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Calls.Wait(t.Context(), "t", c.ID, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	events, _, err := other.Calls.Events(t.Context(), "t", c.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Type+" "+string(e.State)+e.Message[:min(len(e.Message), 8)]+e.Chunk)
		if e.Progress != nil && e.Total != nil {
			got = append(got, fmt.Sprintf("%g of %g", *e.Progress, *e.Total))
		}
	}
	want := []string{"state accepted", "state running", "progress one\n", "progress half way", "progress ", "0.5 of 2",
		"truncated Further ", "state succeeded"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
