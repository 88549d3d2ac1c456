package routing

import (
	"fmt"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A user gets half of the calls in flight of a device, and half of the ordered ones, from any pod. Another user gets
// the rest. The device's own user, and callers without a user, may take all.
func TestCallsOfADeviceAreShared(t *testing.T) {
	store := memory.New(memory.Options{})
	few := func(cfg *PodConfig) { cfg.MaxInFlight = 8 }
	pods := []*Pod{startPod(t, store, "a", few), startPod(t, store, "b", few)}
	for _, test := range []struct {
		name  string
		order registry.Order
		most  int // of one caller
	}{{"any order", registry.OrderNone, 4}, {"in order", registry.OrderSession, 2}} {
		t.Run(test.name, func(t *testing.T) {
			l := connect(t, pods[0], deafConn{}, func(s *registry.Session) { s.UserID = "owner" })
			defer l.Close(t.Context())
			var calls int
			call := func(pod *Pod, user string) <-chan callResult {
				calls++
				return begin(t, pod, l.Session(), fmt.Sprint(test.name, calls), testkit.Limit, func(c *registry.Call) {
					c.Record.UserID, c.Order = user, test.order
				})
			}
			held := func(pod *Pod, user string) {
				t.Helper()
				before := l.InFlight()
				ended := call(pod, user)
				testkit.Eventually(t, "the call is in flight", func() bool {
					select {
					case r := <-ended:
						t.Fatalf("a call of %q was refused: %v", user, r.err)
					default:
					}
					return l.InFlight() > before
				})
			}
			for i := range test.most {
				held(pods[i%2], "eve")
			}
			for _, pod := range pods {
				e := registry.AsError((<-call(pod, "eve")).err)
				if e.Code != registry.CodeBusy || e.Dispatched != registry.DispatchedNo {
					t.Errorf("the call after half: %+v", e)
				}
			}
			held(pods[1], "ann")
			for i := range test.most - 1 {
				held(pods[0], []string{"", "owner"}[i%2])
			}
		})
	}
}
