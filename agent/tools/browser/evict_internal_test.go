package browser

import (
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
)

// A slot in use, whose browser is only being started, does not keep an idle one from making room.
func TestIdleSeatMakesRoomBesideOneThatStarts(t *testing.T) {
	b, err := New(Config{Dir: t.TempDir(), MaxBrowsers: 4, Evict: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	seatOf := func(name string) *slot {
		s, err := b.findSlot(Session{ID: agent.SessionID{Tenant: "t", Identity: "anna", Conversation: name}}, true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return s
	}
	starts, idle := seatOf("starts"), seatOf("idle")
	if !starts.tryAcquire() {
		t.Fatal("a new seat is in use")
	}
	idle.running, idle.used = new(chromium), time.Now().Add(-time.Hour)
	seatOf("third")
	if b.slots[starts.session] != starts || b.slots[idle.session] != nil {
		t.Errorf("%v", b.slots)
	}
	starts.release()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
