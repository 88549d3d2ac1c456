package ws_test

import (
	"testing"

	"github.com/gorilla/websocket"
)

// TestWhatADeviceSaysOfItselfIsNoIdentity: tenant, user and rights come from the credential alone. What a device claims
// in its connect frame, or in the query, changes none of them.
func TestWhatADeviceSaysOfItselfIsNoIdentity(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	honest := g.connect("honest")
	honest.send(`{"type":"connect","v":1}`)
	honest.expect("connected")
	want := g.session("honest").Session()

	d := g.dialWith(websocket.DefaultDialer,
		"session_id=boaster&tenant=other&user=root&user_id=root&role=admin&scopes=admin")
	d.expect("session_start")
	d.send(`{"type":"connect","v":1,"tenant":"other","user":"root","user_id":"root","role":"admin","roles":["admin"],` +
		`"scopes":["admin"],"admin":true,"generation":99,"pod":"elsewhere"}`)
	d.expect("connected")
	got := g.session("boaster").Session()
	if got.Key.Tenant != want.Key.Tenant || got.UserID != want.UserID || got.Pod != want.Pod || got.Generation == 99 {
		t.Errorf("a device made itself %+v; one that claims nothing is %+v", got, want)
	}
	d.alive()
}
