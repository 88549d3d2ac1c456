package desktop

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/farhand/farhand/registry/textsafe"
)

// Names of the service that shows notifications on Linux
// (https://specifications.freedesktop.org/notification-spec/latest/).
const (
	noticeName = "org.freedesktop.Notifications"
	noticePath = "/org/freedesktop/Notifications"
)

const (
	busTime   = 5 * time.Second // for a call that asks no person
	appName   = "Farhand"
	urgent    = byte(2) // a notification that stays until it is answered
	busSignal = 16      // signals that wait to be read

	dismissed = uint32(2) // the reason why a notification is closed: the person did it
)

// sessionBus connects to the bus of the user's session. Close the connection.
func (d *Desktop) sessionBus(ctx context.Context) (*dbus.Conn, error) {
	address := d.vars["DBUS_SESSION_BUS_ADDRESS"]
	if runtime := d.vars["XDG_RUNTIME_DIR"]; address == "" && runtime != "" {
		address = "unix:path=" + runtime + "/bus"
	}
	return connectBus(ctx, "session", address)
}

// systemBus connects to the bus of the machine. Close the connection.
func (d *Desktop) systemBus(ctx context.Context) (*dbus.Conn, error) {
	address := d.vars["DBUS_SYSTEM_BUS_ADDRESS"]
	if address == "" {
		address = "unix:path=/run/dbus/system_bus_socket"
	}
	return connectBus(ctx, "system", address)
}

func connectBus(ctx context.Context, which, address string) (*dbus.Conn, error) {
	if address == "" {
		return nil, fmt.Errorf("there is no D-Bus %s bus: DBUS_SESSION_BUS_ADDRESS is not set", which)
	}
	// The connection outlives the call: then what it has shown is withdrawn.
	ctx, give := context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(busTime, give)
	bus, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err == nil && late.Stop() {
		return bus, nil
	}
	give()
	return nil, fmt.Errorf("connect to the D-Bus %s bus: %w", which, cmp.Or(err, context.DeadlineExceeded))
}

// serves reports whether a service runs on a bus, or starts when it is called.
func serves(ctx context.Context, bus *dbus.Conn, name string) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	for _, list := range []string{"ListNames", "ListActivatableNames"} {
		var names []string
		if err := bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus."+list, 0).Store(&names); err != nil {
			return false, err
		}
		if slices.Contains(names, name) {
			return true, nil
		}
	}
	return false, nil
}

// ownerOf returns the connection that serves a name. Signals have it as their sender.
func ownerOf(ctx context.Context, bus *dbus.Conn, name string) (owner string, err error) {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	err = bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, name).Store(&owner)
	return owner, err
}

// notifications returns why no notifications with a capability can be shown; empty: they can. The capability may be
// empty.
func (d *Desktop) notifications(ctx context.Context, capability string) (missing string) {
	bus, err := d.sessionBus(ctx)
	if err != nil {
		return err.Error()
	}
	defer bus.Close()
	there, err := serves(ctx, bus, noticeName)
	switch {
	case err != nil:
		return err.Error()
	case !there:
		return "no program shows notifications (" + noticeName + " on D-Bus)"
	case capability == "":
		return ""
	}
	capabilities, err := capabilitiesOf(ctx, bus)
	switch {
	case err != nil:
		return err.Error()
	case !slices.Contains(capabilities, capability):
		return "the program that shows notifications has no " + capability
	}
	return ""
}

func capabilitiesOf(ctx context.Context, bus *dbus.Conn) (capabilities []string, err error) {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	call := bus.Object(noticeName, noticePath).CallWithContext(ctx, noticeName+".GetCapabilities", 0)
	err = call.Store(&capabilities)
	return capabilities, err
}

// notice is a notification.
type notice struct {
	title, body string
	actions     []string // words; empty: none
	stays       bool
}

// show shows a notification, and returns its number. Its text is plain, also where notifications may have markup.
func show(ctx context.Context, bus *dbus.Conn, n notice) (id uint32, err error) {
	capabilities, err := capabilitiesOf(ctx, bus)
	if err != nil {
		return 0, err
	}
	body := textsafe.Clean(n.body)
	if slices.Contains(capabilities, "body-markup") {
		body = html.EscapeString(body)
	}
	var actions []string
	for _, word := range n.actions {
		actions = append(actions, word, word) // key, label
	}
	hints, expires := map[string]dbus.Variant{}, int32(-1)
	if n.stays {
		hints["urgency"], expires = dbus.MakeVariant(urgent), 0
	}
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	err = bus.Object(noticeName, noticePath).CallWithContext(ctx, noticeName+".Notify", 0,
		appName, uint32(0), "", textsafe.Clean(n.title), body, actions, hints, expires).Store(&id)
	return id, err
}

// askByNotification shows a notification with a button for each answer. Closing it says no.
func (d *Desktop) askByNotification(ctx context.Context, q Question) Answer {
	bus, err := d.sessionBus(ctx)
	if err != nil {
		return Unanswered
	}
	defer bus.Close()
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(noticeName), dbus.WithMatchObjectPath(noticePath),
		dbus.WithMatchInterface(noticeName)); err != nil {
		return Unanswered
	}
	signals := make(chan *dbus.Signal, busSignal)
	bus.Signal(signals)
	title, body, _ := strings.Cut(q.Text, "\n")
	id, err := show(ctx, bus, notice{title: title, body: body, actions: words(q), stays: true})
	if err != nil {
		return Unanswered
	}
	from, err := ownerOf(ctx, bus, noticeName)
	if err != nil {
		withdraw(bus, id)
		return Unanswered
	}
	for {
		select {
		case s, open := <-signals:
			if !open {
				return Unanswered
			}
			if s.Sender != from {
				continue // any program of the bus may send a signal to this one
			}
			if answer, mine := answerIn(s, id); mine {
				return answer
			}
		case <-ctx.Done():
			withdraw(bus, id)
			return Unanswered
		}
	}
}

// answerIn returns the answer of a signal about a notification. mine is false if it is about another.
func answerIn(s *dbus.Signal, id uint32) (answer Answer, mine bool) {
	if len(s.Body) < 2 || s.Body[0] != id {
		return Unanswered, false
	}
	switch s.Name {
	case noticeName + ".ActionInvoked":
		word, _ := s.Body[1].(string)
		answer = answerOf(word)
		return answer, answer != Unanswered // some programs also have an action for a tap on the text
	case noticeName + ".NotificationClosed":
		if s.Body[1] == dismissed {
			return No, true
		}
		return Unanswered, true
	}
	return Unanswered, false // such as ActivationToken
}

// withdraw closes a notification whose answer is no longer needed.
func withdraw(bus *dbus.Conn, id uint32) {
	bus.Object(noticeName, noticePath).Go(noticeName+".CloseNotification", dbus.FlagNoReplyExpected, nil, id)
}
