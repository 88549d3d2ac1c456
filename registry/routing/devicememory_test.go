package routing

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A device is remembered while it is connected, and for its time after it was last connected. Zero: not at all.
func TestDevicesAreForgotten(t *testing.T) {
	const short, long = 10 * time.Minute, time.Hour
	for name, c := range map[string]struct {
		cfg                   MemoryConfig
		connected, soon, late []string // what is known: while connected, before and after short
	}{
		"both": {
			cfg:       MemoryConfig{Paired: long, Others: short},
			connected: []string{"chosen", "paired"}, soon: []string{"chosen", "paired"}, late: []string{"paired"},
		},
		"paired ones only": {
			cfg:       MemoryConfig{Paired: long},
			connected: []string{"paired"}, soon: []string{"paired"}, late: []string{"paired"},
		},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				pod := startPod(t, store, "a", func(cfg *PodConfig) { cfg.Devices = c.cfg })
				var sessions []*LocalSession
				for _, id := range []string{"chosen", "paired"} {
					sessions = append(sessions, connect(t, pod, deafConn{}, func(s *registry.Session) {
						s.Key.Session, s.DeviceID, s.Bound = "of-"+id, id, id == "paired"
					}))
				}
				want := func(when string, want []string) {
					t.Helper()
					synctest.Wait()
					found, _, err := store.KnownDevices(t.Context(), registry.KnownQuery{Tenant: "t"})
					if err != nil {
						t.Fatal(err)
					}
					var ids []string
					for _, d := range found {
						ids = append(ids, d.Session.DeviceID)
					}
					if slices.Sort(ids); !slices.Equal(ids, want) {
						t.Errorf("%s: %v, want %v", when, ids, want)
					}
				}
				time.Sleep(3 * short)
				want("while they are connected", c.connected)
				for _, l := range sessions {
					l.Close(t.Context())
				}
				left := time.Now()
				time.Sleep(short * 9 / 10)
				want("soon after they left", c.soon)
				time.Sleep(short/10 + memoryPause + time.Second)
				want("later", c.late)
				time.Sleep(long - time.Since(left) + memoryPause + time.Second)
				want("in the end", nil)
			})
		})
	}
}
