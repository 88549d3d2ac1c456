package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A late answer is tried until its caller's pod has taken the call for lost, within the time of a task. Many of them
// have one try each.
func TestTriesOfLateAnswers(t *testing.T) {
	for _, timeout := range []time.Duration{100 * time.Millisecond, DefaultSendTimeout, 30 * time.Second} {
		pod := startPod(t, memory.New(memory.Options{}), timeout.String(), func(cfg *PodConfig) {
			cfg.SendTimeout = timeout
		})
		took := time.Duration(pod.Hub.movedTries()) * latePause
		if took < min(lostAfter(timeout)+recorderPause, taskTimeout-3*latePause) || took > taskTimeout-latePause ||
			took > lostAfter(timeout)+time.Second {
			t.Errorf("a send timeout of %v: tries for %v", timeout, took)
		}
		free := make(chan struct{})
		for i := range maxLate / 2 {
			key := registry.Key{Tenant: fmt.Sprint("t", i), Session: "s"}
			if !pod.Hub.late.start(ofSession(key), func(context.Context) { <-free }) {
				t.Fatalf("no place for answer %d", i)
			}
		}
		if n := pod.Hub.movedTries(); n != 1 {
			t.Errorf("%d tries while most places are taken", n)
		}
		close(free)
	}
}

// An answer keeps its slot between the tries to store it, though its session has no further one. It gives up when the
// pod closes.
func TestAnAnswerKeepsItsSlotWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := &Hub{late: newTasks(maxLate, slog.New(slog.DiscardHandler))}
		key, free, away := registry.Key{Tenant: "t", Session: "s"}, make(chan struct{}), errors.New("away")
		tries := 0
		store := func(until int) func(context.Context) (registry.Moved, error) {
			return func(context.Context) (registry.Moved, error) {
				if tries++; tries < until {
					return registry.Moved{}, away
				}
				return registry.Moved{Applied: true}, nil
			}
		}
		stored := false
		hub.storeOnceBack(key, new(registry.Result), away, store(3), func(m registry.Moved, err error) {
			stored = m.Applied && err == nil
		})
		for hub.late.start(ofSession(key), func(context.Context) { <-free }) {
		}
		time.Sleep(3 * endPause)
		synctest.Wait()
		if !stored || tries != 3 {
			t.Errorf("stored %t, after %d tries", stored, tries)
		}
		close(free)
		synctest.Wait()
		var last error
		hub.storeOnceBack(key, new(registry.Result), away, store(1000), func(_ registry.Moved, err error) { last = err })
		hub.late.wait()
		if !errors.Is(last, away) || tries != 4 {
			t.Errorf("a closing pod: %v, after %d tries", last, tries)
		}
	})
}
