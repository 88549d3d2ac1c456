package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// What pods of other releases write, or do not write, is read as not known, and stands in no pod's way.
func TestPulsesOfOtherReleases(t *testing.T) {
	ctx := context.Background()
	s := storeOn(t, Options{})
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	key := sessionKey(e.Session.Key)
	at := time.UnixMilli(1_800_000_000_123).UTC()
	for text, want := range map[string]registry.Pulse{
		"":                    {},
		"1800000000123":       {At: at},
		"1800000000123 37":    {At: at, RoundTrip: 37 * time.Millisecond},
		"1800000000123 0":     {At: at},
		"1800000000123 -5":    {At: at},
		"1800000000123 x":     {At: at},
		"1800000000123 37 99": {At: at}, // a release that knows more
		"soon 37":             {},
		" 37":                 {},
	} {
		if text == "" {
			s.conn.Client().HDel(ctx, key, fieldPulse)
		} else {
			s.conn.Client().HSet(ctx, key, fieldPulse, text)
		}
		got := must[registry.Entry](t)(s.Entry(ctx, e.Session.Key))
		if got.Pulse != want || got.Session.DeviceID != e.Session.DeviceID {
			t.Errorf("%q: %+v, want %+v", text, got.Pulse, want)
		}
		if missing, lost, err := s.Refresh(ctx, []registry.Entry{e}); err != nil || len(missing)+len(lost) != 0 {
			t.Errorf("%q: refresh: missing %v, lost %v, %v", text, missing, lost, err)
		}
	}
}
