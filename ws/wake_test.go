package ws_test

import (
	"errors"
	"testing"

	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// A device registers how it is woken, and takes that back. What another user registered for the same id stays.
func TestDevicesRegisterHowTheyAreWoken(t *testing.T) {
	store := memory.New(memory.Options{})
	wakes, err := wake.New(wake.Config{
		Store: store, Settings: wake.Settings{WebhookSecret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	})
	must(t, err)
	t.Cleanup(func() { wakes.Close(t.Context()) })
	g := newGatewayOn(t, store, func(c *ws.Config) { c.Wakes = wakes })
	phone := registry.WakeRef{Tenant: registry.DefaultTenant, DeviceID: "phone"}
	const hook = `{"type":"register_wake","wake":{"kind":"webhook","url":"https://example.com/1"}}`

	old := g.connect("old")
	old.send(`{"type":"connect","device_id":"old","capabilities":[]}`)
	if got := old.expect("connected"); got["wake"] != nil {
		t.Errorf("a device that does not know it is offered %v", got["wake"])
	}
	old.send(hook)
	old.expectError("INVALID_MESSAGE", "capability wake")

	d := g.connect("phone")
	d.send(`{"type":"connect","capabilities":["wake"]}`)
	d.expect("connected")
	d.send(hook)
	d.expectError("INVALID_MESSAGE", "device_id")
	d.send(`{"type":"connect","device_id":"phone","capabilities":["wake"]}`)
	offer, _ := d.expect("connected")["wake"].(map[string]any)
	if kinds, _ := offer["kinds"].([]any); len(kinds) != 1 || kinds[0] != "webhook" {
		t.Errorf("offered %v", offer)
	}
	for _, bad := range []struct{ wake, part string }{
		{`7`, "wake"}, {`{"kind":"webhook"}`, "url"}, {`{"kind":"pigeon"}`, "kind"},
		{`{"kind":"webhook","url":"https://localhost/"}`, "not allowed"},
		{`{"kind":"apns","token":"a","topic":"b"}`, "not set up"},
	} {
		d.send(`{"type":"register_wake","wake":` + bad.wake + `}`)
		d.expectError("INVALID_MESSAGE", bad.part)
	}
	d.send(hook)
	if got := d.expect("wake_registered"); got["kind"] != "webhook" || got["min_interval_ms"] != 60000.0 {
		t.Errorf("registered %v", got)
	}
	r, err := store.WakeOf(t.Context(), phone)
	if err != nil || r.Wake.URL != "https://example.com/1" {
		t.Errorf("stored %+v, %v", r, err)
	}
	d.send(`{"type":"register_wake"}`)
	if got := d.expect("wake_registered"); got["kind"] != nil {
		t.Errorf("registered %v", got)
	}
	if _, err = store.WakeOf(t.Context(), phone); !errors.Is(err, registry.CodeNotFound) {
		t.Errorf("after it was taken back: %v", err)
	}

	other := registry.WakeRecord{Tenant: registry.DefaultTenant, DeviceID: "phone", User: "somebody", Wake: r.Wake}
	must(t, store.SetWake(t.Context(), other))
	for _, frame := range []string{hook, `{"type":"register_wake"}`} {
		d.send(frame)
		d.expect("wake_registered")
	}
	if _, err := store.WakeOf(t.Context(), other.Ref()); err != nil {
		t.Errorf("what another user registered: %v", err)
	}
}
