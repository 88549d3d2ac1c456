package desktop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/farhand/farhand/ws/client"
)

// location is a position as the device page returns it.
type location struct {
	Latitude  float64  `json:"latitude"`  // degrees
	Longitude float64  `json:"longitude"` // degrees
	Source    string   `json:"source"`
	Accuracy  float64  `json:"accuracy_m"`
	Altitude  *float64 `json:"altitude_m,omitempty"`
	At        string   `json:"at,omitempty"` // RFC 3339
}

const locationTime = 30 * time.Second

func (d *Desktop) locationWay(ctx context.Context) way {
	if fixed := d.cfg.Location; fixed != nil {
		return by("--location", func(context.Context, client.Call, none) (any, error) { return *fixed, nil })
	}
	find, what, missing := d.locator(ctx)
	if missing != "" {
		return lacks("%s", missing)
	}
	return by(what, func(ctx context.Context, _ client.Call, _ none) (any, error) {
		ctx, stop := context.WithTimeoutCause(ctx, locationTime, fmt.Errorf("no position within %v", locationTime))
		defer stop()
		return find(ctx)
	})
}

// locator returns what knows where this machine is.
func (d *Desktop) locator(ctx context.Context) (find func(context.Context) (any, error), what, missing string) {
	switch d.system {
	case "darwin":
		path := d.look("CoreLocationCLI")
		if path == "" {
			return nil, "", "macOS tells only apps where it is: install CoreLocationCLI, or set --location"
		}
		return func(ctx context.Context) (any, error) { return d.coreLocation(ctx, path) }, "CoreLocationCLI", ""
	case "windows":
		if d.look(powershell) == "" {
			return nil, "", "PowerShell is missing"
		}
		return d.windowsLocation, "PowerShell", ""
	}
	bus, err := d.systemBus(ctx)
	if err != nil {
		return nil, "", err.Error() + "; or set --location"
	}
	defer bus.Close()
	there, err := serves(ctx, bus, geoClue)
	switch {
	case err != nil:
		return nil, "", err.Error()
	case !there:
		return nil, "", "GeoClue is missing: install geoclue-2.0, or set --location"
	}
	return d.geoClue, "GeoClue", ""
}

// Names of GeoClue, the service that knows the position on Linux.
const (
	geoClue       = "org.freedesktop.GeoClue2"
	geoClient     = geoClue + ".Client"
	geoLocation   = geoClue + ".Location"
	exact         = uint32(8)
	unknownHeight = -1e300 // GeoClue's is the smallest double
)

// geoClue asks GeoClue for the position.
func (d *Desktop) geoClue(ctx context.Context) (any, error) {
	bus, err := d.systemBus(ctx)
	if err != nil {
		return nil, err
	}
	defer bus.Close()
	manager := bus.Object(geoClue, "/org/freedesktop/GeoClue2/Manager")
	var path dbus.ObjectPath
	if err := manager.CallWithContext(ctx, geoClue+".Manager.GetClient", 0).Store(&path); err != nil {
		return nil, fmt.Errorf("GeoClue: %w", err)
	}
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(geoClue), dbus.WithMatchObjectPath(path),
		dbus.WithMatchInterface(geoClient)); err != nil {
		return nil, err
	}
	signals := make(chan *dbus.Signal, busSignal)
	bus.Signal(signals)
	asking := bus.Object(geoClue, path)
	for name, value := range map[string]any{"DesktopId": "farhand", "RequestedAccuracyLevel": exact} {
		if err := asking.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Set", 0, geoClient, name,
			dbus.MakeVariant(value)).Err; err != nil {
			return nil, fmt.Errorf("GeoClue: set %s: %w", name, err)
		}
	}
	if err := asking.CallWithContext(ctx, geoClient+".Start", 0).Err; err != nil {
		return nil, fmt.Errorf("GeoClue: %w", err)
	}
	defer asking.Go(geoClient+".Stop", dbus.FlagNoReplyExpected, nil)
	return awaitLocation(ctx, bus, signals)
}

// awaitLocation waits until GeoClue says where a position is, and reads it.
func awaitLocation(ctx context.Context, bus *dbus.Conn, signals <-chan *dbus.Signal) (any, error) {
	from, err := ownerOf(ctx, bus, geoClue)
	if err != nil {
		return nil, fmt.Errorf("GeoClue: %w", err)
	}
	for {
		select {
		case s, open := <-signals:
			if !open {
				return nil, errors.New("GeoClue: the D-Bus connection ended")
			}
			if s.Sender != from || s.Name != geoClient+".LocationUpdated" || len(s.Body) < 2 {
				continue
			}
			now, _ := s.Body[1].(dbus.ObjectPath)
			return readLocation(ctx, bus, now)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// readLocation reads a position of GeoClue.
func readLocation(ctx context.Context, bus *dbus.Conn, path dbus.ObjectPath) (any, error) {
	if !path.IsValid() {
		return nil, errors.New("GeoClue sent no location")
	}
	var all map[string]dbus.Variant
	if err := bus.Object(geoClue, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0,
		geoLocation).Store(&all); err != nil {
		return nil, fmt.Errorf("GeoClue: read the location: %w", err)
	}
	var found [4]float64
	for i, name := range []string{"Latitude", "Longitude", "Accuracy", "Altitude"} {
		value, ok := all[name].Value().(float64)
		if !ok {
			return nil, fmt.Errorf("GeoClue sent no %s", name)
		}
		found[i] = value
	}
	l := location{Latitude: found[0], Longitude: found[1], Accuracy: found[2], Source: "geoclue"}
	if found[3] > unknownHeight {
		l.Altitude = &found[3]
	}
	if at, ok := all["Timestamp"].Value().([]any); ok && len(at) == 2 {
		if unix, ok := at[0].(uint64); ok {
			l.At = time.Unix(int64(unix), 0).UTC().Format(time.RFC3339)
		}
	}
	return l, nil
}

// coreLocation asks a program of macOS, which prints numbers as strings.
func (d *Desktop) coreLocation(ctx context.Context, path string) (any, error) {
	out, err := d.run(ctx, program{path: path, args: []string{"--json"}, time: locationTime})
	if err != nil {
		return nil, err
	}
	var said map[string]any
	if err := json.Unmarshal(out, &said); err != nil {
		return nil, fmt.Errorf("CoreLocationCLI: %w", err)
	}
	return locationOf("corelocation", func(name string) string { return fmt.Sprint(said[name]) },
		"latitude", "longitude", "h_accuracy")
}

// windowsLocation asks the location service of Windows.
func (d *Desktop) windowsLocation(ctx context.Context) (any, error) {
	out, err := d.powershellFor(ctx, locationTime, "location", none{})
	if err != nil {
		return nil, err
	}
	var said map[string]json.Number
	if err := json.Unmarshal(out, &said); err != nil {
		return nil, fmt.Errorf("location service: %w", err)
	}
	return locationOf("windows", func(name string) string { return said[name].String() },
		"latitude", "longitude", "accuracy")
}

// locationOf returns a position of texts.
func locationOf(source string, text func(name string) string, names ...string) (any, error) {
	var found [3]float64
	for i, name := range names {
		var err error
		if found[i], err = strconv.ParseFloat(text(name), 64); err != nil {
			return nil, fmt.Errorf("%s said no %s", source, name)
		}
	}
	return location{Latitude: found[0], Longitude: found[1], Accuracy: found[2], Source: source}, nil
}
