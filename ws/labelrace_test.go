package ws

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Connections of one session that change its labels at the same time pay for each change, as they would one after the
// other. The message says whether the session's limit was reached, or that of its device.
func TestRacingLabelsArePaidFor(t *testing.T) {
	const (
		labels = 16                                         // of each connection
		most   = 1 + (labelBurst-labels)/(2*labels)         // changes from one set to another that the burst pays for
		ofAll  = sessionsOfDevice*labelBurst/(2*labels) + 1 // and that of a device
		racing = 4 * most                                   // connections
	)
	limited := limits{labels: auth.Limit{Rate: 1e-9, Burst: labelBurst}}
	key := func(session int) registry.Key { return registry.Key{Tenant: "t", Session: fmt.Sprint("s", session)} }
	who := &auth.Identity{Tenant: "t", Device: "lamp", Credential: "device:1"}
	sets := make([]map[string]string, racing)
	for i := range sets {
		sets[i] = make(map[string]string)
		for j := range labels {
			sets[i][fmt.Sprint("k", j)] = fmt.Sprint("v", i)
		}
	}
	for range 100 {
		budgets := newDeviceBudgets(limited)
		var taken atomic.Int64
		var wg sync.WaitGroup
		begin, fulls := make(chan struct{}), make(chan spender, racing)
		for _, set := range sets {
			b := budgets.acquire(key(0), netip.Prefix{}, who)
			wg.Go(func() {
				<-begin
				if full := b.takeLabels(set); full == noSpender {
					taken.Add(1)
				} else {
					fulls <- full
				}
			})
		}
		close(begin)
		wg.Wait()
		if n := taken.Load(); n != most {
			t.Fatalf("%d of %d racing connections changed all labels, %d times are paid for", n, racing, most)
		}
		if full := <-fulls; full != thisSession {
			t.Fatalf("the limit of %s is reached", full)
		}
		total := most
		for session, full := 1, noSpender; full != thisDevice; session++ {
			if session > 2*sessionsOfDevice {
				t.Fatalf("%d changes of a device", total)
			}
			b := budgets.acquire(key(session), netip.Prefix{}, who)
			for full = noSpender; full == noSpender; {
				if full = b.takeLabels(sets[total%racing]); full == noSpender {
					total++
				}
			}
		}
		if total > ofAll+sessionsOfDevice {
			t.Fatalf("%d changes of a device", total)
		}
	}
}
