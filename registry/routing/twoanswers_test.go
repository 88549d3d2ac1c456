package routing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// slowReplies is a bus that is slow with what was answered.
type slowReplies struct{ registry.Bus }

func (b slowReplies) Reply(pod string, r registry.Reply) error {
	if r.Result != nil {
		time.AfterFunc(time.Second, func() { _ = b.Bus.Reply(pod, r) })
		return nil
	}
	return b.Bus.Reply(pod, r)
}

// Of two answers to a fast call whose caller has given up, the first counts, although the second is here before the
// first is on record.
func TestSecondAnswerToACallThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		asking := startPod(t, store, "a")
		owning := startPod(t, store, "b", func(c *PodConfig) { c.Bus = slowReplies{c.Bus} })
		l := connect(t, owning, deafConn{}, nil)
		ended := begin(t, asking, l.Session(), "c1", 100*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		acks := make(chan bool, 2)
		for _, text := range []string{"first", "second"} {
			l.Complete("c1", registry.Result{Success: true, Output: text}, func(i bool) { acks <- i })
			time.Sleep(200 * time.Millisecond)
		}
		if got := <-ended; got.err == nil {
			t.Fatalf("%+v", got)
		}
		time.Sleep(3 * time.Second)
		var ignored []bool
		for range 2 {
			ignored = append(ignored, <-acks)
		}
		r, err := store.ReadCall(context.Background(), "t", "c1")
		if err != nil || r.Result == nil || r.Result.Output != "first" || !r.Late || ignored[0] || !ignored[1] {
			t.Errorf("%+v, %v; ignored %v", r, err, ignored)
		}
	})
}
