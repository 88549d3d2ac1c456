package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

var podTests = []subtest{
	{name: "a lease is known while it is renewed", run: func(f *fixture) {
		pod := "p-" + f.id
		for i, want := range []bool{false, true, true} {
			known, err := f.store.Heartbeat(f.ctx, pod)
			if err != nil || known != want {
				f.Fatalf("beat %d: known %v, %v; want %v", i, known, err, want)
			}
		}
		f.eventually("the pod is live", func() bool { return f.live(pod) })
		f.must(f.store.Leave(f.ctx, pod))
		f.eventually("the pod that left is gone", func() bool { return !f.live(pod) })
	}},
	{name: "a dead pod's sessions vanish within the lease and are swept",
		limits: registry.Limits{SessionTTL: time.Minute, PodLease: briefly}, run: func(f *fixture) {
			dead, alive := f.pod("dead"), f.pod("alive")
			for i := range 5 {
				f.putTools(f.claim(fmt.Sprintf("d%d", i), dead, device("x")), tool("camera", "x"), tool("own", "x"))
			}
			moved := f.claim("moved", dead)
			f.putTools(moved, tool("camera", "x"))
			f.putTools(f.claim("moved", alive), tool("camera", "x"))
			f.eventually("the sessions are not listed any more", func() bool {
				f.must(errOf(f.store.Heartbeat(f.ctx, alive)))
				return names(f.list(registry.Query{})) == "moved(camera)"
			})
			f.eventually("nor found by their ids", func() bool {
				return errors.Is(errOf(f.store.Entry(f.ctx, f.key("d0"))), registry.CodeNotConnected)
			})
			f.eventually("the dead pod is swept", func() bool {
				f.must(errOf(f.store.Heartbeat(f.ctx, alive)))
				f.must(errOf(f.store.Sweep(f.ctx)))
				got := f.groups(registry.OfferedToolQuery{})
				return len(got) == 1 && got["camera x"] == 1
			})
			known, err := f.store.Heartbeat(f.ctx, dead)
			if err != nil || known {
				f.Errorf("the dead pod's lease came back by itself: %v, %v", known, err)
			}
		}},
	{name: "a pod that comes back restores its sessions",
		limits: registry.Limits{SessionTTL: time.Minute, PodLease: briefly}, run: func(f *fixture) {
			pod := f.pod("paused")
			s := f.claim("s1", pod)
			e := registry.Entry{Session: s, Tools: []registry.ToolSpec{tool("camera", "x")}}
			f.putTools(s, e.Tools...)
			// A write before the restoring is postponed. It must not count as a write of a replaced connection, because
			// the device would then be sent away for good.
			var err error
			f.eventually("another pod sweeps it", func() bool {
				f.must(errOf(f.store.Sweep(f.ctx)))
				err = f.store.Update(f.ctx, s)
				return err != nil
			})
			f.wantCode(err, registry.CodeStoreUnavailable)
			err = f.store.SetTools(f.ctx, s, []registry.ToolSpec{tool("more", "x")})
			f.wantCode(err, registry.CodeStoreUnavailable)
			missing, _, err := f.store.Refresh(f.ctx, []registry.Entry{e})
			if err != nil || len(missing) != 1 {
				f.Errorf("missing %v, %v", missing, err)
			}
			f.must(errOf(f.store.Heartbeat(f.ctx, pod)))
			restored, err := f.store.Restore(f.ctx, e)
			f.must(err)
			f.eventually("the session is listed again", func() bool {
				f.must(errOf(f.store.Heartbeat(f.ctx, pod)))
				return names(f.list(registry.Query{})) == "s1(camera)"
			})
			if restored.Generation <= s.Generation {
				f.Errorf("generation %d after %d", restored.Generation, s.Generation)
			}
		}},
}

func (f *fixture) live(pod string) bool {
	f.Helper()
	live, err := f.store.Live(f.ctx)
	f.must(err)
	return slices.Contains(live, pod)
}
