package registry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// A new record of a light call replaces the stored one, unless the stored one knows more.
func TestWhichRecordIsKept(t *testing.T) {
	for _, tt := range []struct {
		stored, next registry.State
		want         registry.Keeping
	}{
		{registry.StateRunning, registry.StateSucceeded, registry.KeepReplace},
		{registry.StateSucceeded, registry.StateRunning, registry.KeepFill},
		{registry.StateTimedOut, registry.StateSucceeded, registry.KeepAnswer},
		{registry.StateTimedOut, registry.StateLost, registry.KeepFill},
		{registry.StateSucceeded, registry.StateFailed, registry.KeepReplace},
		{registry.StateSucceeded, registry.StateTimedOut, registry.KeepLate},
		{registry.StateFailed, registry.StateCancelled, registry.KeepReplace},
	} {
		if got := tt.stored.Keep(tt.next); got != tt.want {
			t.Errorf("%s, then %s: %s, want %s", tt.stored, tt.next, got, tt.want)
		}
	}
}

// A session that its device can prove to own is left to it for a while, and then to the one it had before.
func TestWhoMayTakeASessionBack(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	former := registry.Session{Proofs: []string{"p"}}
	if by, _ := registry.Succeed(former, now); by != nil {
		t.Errorf("a session without a device is kept for %q", by)
	}
	former.DeviceID = "phone"
	by, until := registry.Succeed(former, now)
	if !slices.Equal(by, former.Proofs) || !until.After(now) {
		t.Errorf("%q until %v", by, until)
	}
	former.ReclaimableBy, former.ReclaimableUntil = []string{"older"}, now.Add(time.Second)
	if by, until := registry.Succeed(former, now); !slices.Equal(by, former.ReclaimableBy) ||
		!until.Equal(former.ReclaimableUntil) {
		t.Errorf("%q until %v", by, until)
	}
	if by, _ := registry.Succeed(former, now.Add(time.Minute)); !slices.Equal(by, former.Proofs) {
		t.Errorf("after the time of others: %q", by)
	}
}

func TestSizesOfParts(t *testing.T) {
	parts := []registry.Part{{Name: "a.png", Data: make([]byte, 1000)}, {URL: "https://x.example", URI: "file:///x"}}
	if n := registry.InlineSize(parts); n != 1000 {
		t.Errorf("%d bytes of data", n)
	}
	bare := registry.WithoutData(parts)
	if registry.InlineSize(bare) != 0 || registry.InlineSize(parts) != 1000 || bare[0].Name != "a.png" {
		t.Errorf("without data: %+v", bare)
	}
	if with, without := registry.PartsSize(parts), registry.PartsSize(bare); with-without != 1000 || without <= 0 {
		t.Errorf("%d bytes with data, %d without", with, without)
	}
	if registry.WithoutData(nil) != nil {
		t.Error("no parts are some")
	}
}
