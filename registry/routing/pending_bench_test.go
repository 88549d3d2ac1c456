package routing

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/registry"
)

// BenchmarkWaiters is the life of a waiting caller: it enters the table, is found by its answer, and leaves. The table
// holds others meanwhile.
func BenchmarkWaiters(b *testing.B) {
	for _, others := range []int{0, 1024} {
		b.Run("waiting_"+strconv.Itoa(others), func(b *testing.B) {
			w := newPendingCalls()
			for i := range others {
				w.add(&registry.Call{ID: "other-" + strconv.Itoa(i), Record: &registry.Record{}}, "pod-b")
			}
			result := &registry.Result{Success: true, Output: "done"}
			var next atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				record := &registry.Record{State: registry.StateAccepted}
				for pb.Next() {
					id := strconv.FormatInt(next.Add(1), 36)
					wt := w.add(&registry.Call{ID: id, Record: record}, "pod-b")
					if !w.deliver(registry.Reply{CallID: id, Result: result}) {
						b.Error("nobody was waiting")
					}
					<-wt.ready
					w.remove(wt)
				}
			})
		})
	}
}
