package ws

import (
	"testing"

	"github.com/farhand/farhand/registry/routing"
)

func TestCatalogue(t *testing.T) {
	for c := CloseReplaced; c < closeGone; c++ {
		if len(c.payload()) > 125 || c.Code() < 1000 {
			t.Errorf("%v does not fit a close frame", c)
		}
		// ClawSeed's client goes by the number alone: it comes back after every code except 1000.
		if c.Reconnect() != (c.Code() != 1000) {
			t.Errorf("%v: reconnect %v contradicts what clients do", c, c.Reconnect())
		}
	}
	for cause, want := range map[routing.CloseCause]Close{
		routing.CloseReplaced: CloseReplaced, routing.CloseKicked: CloseEnded, routing.CloseDraining: CloseRestart,
	} {
		if got := closeFor(cause); got != want {
			t.Errorf("%s: %v, want %v", cause, got, want)
		}
	}
}
