package desktop_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/farhand/farhand/cmd/farhand/desktop"
)

// A notification asks, and its answer decides.
func TestAskedByNotification(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := everything(t, s)
	cfg.Allow, cfg.Confirm = nil, desktop.ByNotification
	d := connect(t, cfg)
	calls := make(chan answer, 1)
	ask := func(tool, args string) notice {
		t.Helper()
		go func() { calls <- d.call(t.Context(), t, tool, args) }()
		return s.notices.next(t)
	}
	s.notices.tap(t, ask("run", `{"command":"printf no"}`), "No")
	if a := <-calls; a.Success {
		t.Errorf("%+v", a)
	}
	s.notices.dismiss(t, ask("run", `{"command":"printf no"}`))
	if a := <-calls; a.Success {
		t.Errorf("%+v", a)
	}
	shown := ask("run", `{"command":"printf '<b>'"}`)
	if !strings.HasSuffix(shown.body, "/printf&#34; &#34;&lt;b&gt;&#34;") || strings.Contains(shown.body, "\n") ||
		!slices.Equal(shown.actions, []string{"No", "No", "Allow", "Allow"}) {
		t.Errorf("%+v", shown)
	}
	s.notices.tap(t, notice{id: shown.id + 100}, "Allow") // another's
	s.notices.tap(t, shown, "default")                    // no answer
	s.notices.tap(t, shown, "Allow")
	if a := <-calls; !a.Success || !strings.Contains(a.Output, "<b>") {
		t.Errorf("%+v", a)
	}
	s.notices.tap(t, ask("clipboard_read", `{}`), "Always allow")
	if a := <-calls; !a.Success {
		t.Errorf("%+v", a)
	}
	if a := d.call(t.Context(), t, "clipboard_read", `{}`); !a.Success || len(s.notices.shown) > 0 {
		t.Errorf("%+v; asked again: %d", a, len(s.notices.shown))
	}
}

// Another program of the bus cannot answer.
func TestStrangersDoNotAnswer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := everything(t, s)
	cfg.Allow, cfg.Confirm = nil, desktop.ByNotification
	d := connect(t, cfg)
	calls := make(chan answer, 1)
	go func() { calls <- d.call(t.Context(), t, "run", `{"command":"printf no"}`) }()
	shown := s.notices.next(t)
	stranger := s.another(t)
	const name = "org.freedesktop.Notifications"
	m := &dbus.Message{Type: dbus.TypeSignal, Body: []any{shown.id, "Allow"},
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/Notifications")),
			dbus.FieldInterface:   dbus.MakeVariant(name),
			dbus.FieldMember:      dbus.MakeVariant("ActionInvoked"),
			dbus.FieldDestination: dbus.MakeVariant(shown.sender),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(shown.id, "Allow")),
		}}
	must(t, m.IsValid())
	if call := stranger.Send(m, nil); call != nil && call.Err != nil {
		t.Fatal(call.Err)
	}
	must(t, stranger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err) // the bus has sent it on
	s.notices.tap(t, shown, "No")
	if a := <-calls; a.Success {
		t.Errorf("%+v", a)
	}
}

// The question of a caller that no longer waits is withdrawn.
func TestQuestionIsWithdrawn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := everything(t, s)
	cfg.Allow, cfg.Confirm = nil, desktop.ByNotification
	d := connect(t, cfg)
	d.timeout = 1500
	if a := d.call(t.Context(), t, "screenshot", `{}`); a.Success {
		t.Errorf("%+v", a)
	}
	shown := s.notices.next(t)
	select {
	case id := <-s.notices.closed:
		if id != shown.id {
			t.Errorf("%d was closed, not %d", id, shown.id)
		}
	case <-time.After(limit):
		t.Error("the question stays")
	}
}

// Without a person and without a policy nothing runs that needs either.
func TestPolicyRefuses(t *testing.T) {
	t.Parallel()
	d := connect(t, desktop.Config{Environ: []string{"PATH=" + os.Getenv("PATH")}, Folder: t.TempDir()})
	for tool, args := range map[string]string{"run": `{"command":"true"}`, "file_write": `{"path":"a","text":"x"}`} {
		if a := d.call(t.Context(), t, tool, args); a.Success || !strings.Contains(a.Error, "--allow") {
			t.Errorf("%s: %+v", tool, a)
		}
	}
}
