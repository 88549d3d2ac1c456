package desktop_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// notice is a notification that was shown.
type notice struct {
	id          uint32
	title, body string
	actions     []string
	sender      string // the connection of the program that shows it
}

// notices is a service that shows notifications.
type notices struct {
	bus    *dbus.Conn
	shown  chan notice
	closed chan uint32
	last   atomic.Uint32
}

func serveNotices(t *testing.T, bus *dbus.Conn) *notices {
	t.Helper()
	n := &notices{bus: bus, shown: make(chan notice, 64), closed: make(chan uint32, 64)}
	const name = "org.freedesktop.Notifications"
	must(t, bus.Export(n, "/org/freedesktop/Notifications", name))
	reply, err := bus.RequestName(name, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return n
}

// GetCapabilities is a method of the service.
func (n *notices) GetCapabilities() ([]string, *dbus.Error) {
	return []string{"actions", "body", "body-markup"}, nil
}

// Notify is a method of the service.
func (n *notices) Notify(sender dbus.Sender, _ string, _ uint32, _, title, body string, actions []string,
	_ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	id := n.last.Add(1)
	n.shown <- notice{id, title, body, actions, string(sender)}
	return id, nil
}

// CloseNotification is a method of the service.
func (n *notices) CloseNotification(id uint32) *dbus.Error {
	n.closed <- id
	return nil
}

// next returns the next notification.
func (n *notices) next(t *testing.T) notice {
	t.Helper()
	select {
	case shown := <-n.shown:
		return shown
	case <-time.After(limit):
		t.Fatal("no notification was shown")
		return notice{}
	}
}

// tap taps on an action, and dismiss on the notification's cross.
func (n *notices) tap(t *testing.T, shown notice, action string) {
	t.Helper()
	must(t, n.bus.Emit("/org/freedesktop/Notifications", "org.freedesktop.Notifications.ActionInvoked", shown.id,
		action))
}

func (n *notices) dismiss(t *testing.T, shown notice) {
	t.Helper()
	must(t, n.bus.Emit("/org/freedesktop/Notifications", "org.freedesktop.Notifications.NotificationClosed", shown.id,
		uint32(2)))
}

// clue is GeoClue: its manager and its only client.
type clue struct{ bus *dbus.Conn }

func serveLocation(t *testing.T, bus *dbus.Conn) {
	t.Helper()
	c := clue{bus}
	const name, path = "org.freedesktop.GeoClue2", "/org/freedesktop/GeoClue2/"
	must(t, errors.Join(
		bus.Export(c, path+"Manager", name+".Manager"), bus.Export(c, path+"Client/1", name+".Client"),
		bus.Export(properties{}, path+"Client/1", "org.freedesktop.DBus.Properties"),
		bus.Export(properties{}, path+"Client/1/Location/0", "org.freedesktop.DBus.Properties"),
	))
	_, err := bus.RequestName(name, dbus.NameFlagDoNotQueue)
	must(t, err)
}

// GetClient is a method of the manager.
func (clue) GetClient() (dbus.ObjectPath, *dbus.Error) {
	return "/org/freedesktop/GeoClue2/Client/1", nil
}

// Start is a method of the client.
func (c clue) Start() *dbus.Error {
	const client = "/org/freedesktop/GeoClue2/Client/1"
	err := c.bus.Emit(client, "org.freedesktop.GeoClue2.Client.LocationUpdated", dbus.ObjectPath("/"),
		dbus.ObjectPath(client+"/Location/0"))
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	return nil
}

// Stop is a method of the client.
func (clue) Stop() *dbus.Error { return nil }

// properties are those of the client and of its location.
type properties struct{}

// Set is a method of the interface for properties.
func (properties) Set(_, name string, value dbus.Variant) *dbus.Error {
	if name == "RequestedAccuracyLevel" && value.Value() != uint32(8) {
		return dbus.MakeFailedError(errors.New("not the exact location"))
	}
	return nil
}

// GetAll is a method of the interface for properties.
func (properties) GetAll(string) (map[string]dbus.Variant, *dbus.Error) {
	return map[string]dbus.Variant{
		"Latitude": dbus.MakeVariant(48.2083), "Longitude": dbus.MakeVariant(16.3731),
		"Accuracy": dbus.MakeVariant(25.0), "Altitude": dbus.MakeVariant(-1.7976931348623157e308),
		"Timestamp": dbus.MakeVariant(stamp{1_700_000_000, 0}),
	}, nil
}

type stamp struct{ Seconds, Micros uint64 }

// portal is the service for screenshots of a Wayland desktop.
type portal struct {
	bus *dbus.Conn
	dir string
}

func servePortal(t *testing.T, bus *dbus.Conn, dir string) {
	t.Helper()
	const path = "/org/freedesktop/portal/desktop"
	p := portal{bus, dir}
	must(t, errors.Join(bus.Export(p, path, "org.freedesktop.portal.Screenshot"),
		bus.Export(p, path, "org.freedesktop.DBus.Properties")))
	_, err := bus.RequestName("org.freedesktop.portal.Desktop", dbus.NameFlagDoNotQueue)
	must(t, err)
}

// Get is a method of the interface for properties.
func (portal) Get(_, _ string) (dbus.Variant, *dbus.Error) { return dbus.MakeVariant(uint32(2)), nil }

// Screenshot is a method of the portal. The answer comes before its return, as it may.
func (p portal) Screenshot(sender dbus.Sender, _ string, options map[string]dbus.Variant) (
	dbus.ObjectPath, *dbus.Error,
) {
	name := strings.ReplaceAll(strings.TrimPrefix(string(sender), ":"), ".", "_")
	token, _ := options["handle_token"].Value().(string)
	request := dbus.ObjectPath("/org/freedesktop/portal/desktop/request/" + name + "/" + token)
	file := filepath.Join(p.dir, "a screen.png")
	err := errors.Join(os.WriteFile(file, []byte("picture"), 0o600),
		p.bus.Emit(request, "org.freedesktop.portal.Request.Response", uint32(0), map[string]dbus.Variant{
			"uri": dbus.MakeVariant("file://" + strings.ReplaceAll(file, " ", "%20")),
		}))
	if err != nil {
		return "", dbus.MakeFailedError(err)
	}
	return request, nil
}
