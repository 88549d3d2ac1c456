package routing

import (
	"context"
	"fmt"
	"testing"
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
		for i := range maxLate/2 + 1 {
			key := registry.Key{Tenant: fmt.Sprint("t", i), Session: "s"}
			if !pod.Hub.late.start(key, func(context.Context) { <-free }) {
				t.Fatalf("no place for answer %d", i)
			}
		}
		if n := pod.Hub.movedTries(); n != 1 {
			t.Errorf("%d tries while most places are taken", n)
		}
		close(free)
	}
}
