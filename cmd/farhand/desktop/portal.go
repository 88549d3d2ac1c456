package desktop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Names of the service through which programs see the screen of any Wayland desktop. The desktop itself asks its person
// the first time (https://flatpak.github.io/xdg-desktop-portal/docs/doc-org.freedesktop.portal.Screenshot.html).
const (
	portalName    = "org.freedesktop.portal.Desktop"
	portalPath    = "/org/freedesktop/portal/desktop"
	portalScreen  = "org.freedesktop.portal.Screenshot"
	portalRequest = "org.freedesktop.portal.Request"
)

// portal returns why the screenshot portal cannot be used; empty: it can.
func (d *Desktop) portal(ctx context.Context) (missing string) {
	bus, err := d.sessionBus(ctx)
	if err != nil {
		return err.Error()
	}
	defer bus.Close()
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	var version dbus.Variant
	if err := bus.Object(portalName, portalPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0,
		portalScreen, "version").Store(&version); err != nil {
		return "the desktop has no portal for screenshots"
	}
	return ""
}

// portalScreenshot takes a picture of the screen through the portal, which leaves it in a file.
func (d *Desktop) portalScreenshot(ctx context.Context) ([]byte, error) {
	bus, err := d.sessionBus(ctx)
	if err != nil {
		return nil, err
	}
	defer bus.Close()
	// The path of the request is known before the call, so that its answer cannot come too early.
	token := "farhand" + rand.Text()
	sender := strings.ReplaceAll(strings.TrimPrefix(bus.Names()[0], ":"), ".", "_")
	request := dbus.ObjectPath(portalPath + "/request/" + sender + "/" + token)
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(request),
		dbus.WithMatchInterface(portalRequest)); err != nil {
		return nil, err
	}
	signals := make(chan *dbus.Signal, busSignal)
	bus.Signal(signals)
	options := map[string]dbus.Variant{"handle_token": dbus.MakeVariant(token), "interactive": dbus.MakeVariant(false)}
	if err := bus.Object(portalName, portalPath).CallWithContext(ctx, portalScreen+".Screenshot", 0, "",
		options).Err; err != nil {
		return nil, fmt.Errorf("screenshot portal: %w", err)
	}
	from, err := ownerOf(ctx, bus, portalName)
	if err != nil {
		return nil, fmt.Errorf("screenshot portal: %w", err)
	}
	for {
		select {
		case s, open := <-signals:
			if !open {
				return nil, errors.New("screenshot portal: the D-Bus connection ended")
			}
			if s.Sender == from && s.Path == request && s.Name == portalRequest+".Response" {
				return portalFile(s.Body)
			}
		case <-ctx.Done():
			bus.Object(portalName, request).Go(portalRequest+".Close", dbus.FlagNoReplyExpected, nil)
			return nil, context.Cause(ctx)
		}
	}
}

// portalFile reads and removes the file that an answer of the portal names.
func portalFile(body []any) ([]byte, error) {
	var code uint32
	var results map[string]dbus.Variant
	if err := dbus.Store(body, &code, &results); err != nil {
		return nil, fmt.Errorf("screenshot portal: %w", err)
	}
	if code != 0 {
		return nil, errRefused
	}
	address, _ := results["uri"].Value().(string)
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" {
		return nil, fmt.Errorf("screenshot portal: %q is no file", address)
	}
	data, err := readBounded(u.Path)
	return data, errors.Join(err, os.Remove(u.Path))
}
