package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/cmd/farhand/nodetools"
)

// maxNotification is how many characters of a notification are shown, all on one line: no line of it looks like a
// question of ours.
const maxNotification = 1000

// nodeCommands returns the commands of a node on this machine. The canvas is served until stop is called, which waits
// for its end.
func (a *application) nodeCommands(
	ctx context.Context, o deviceOptions, terminal *terminalApprover,
) (commands []demotools.Tool, stop func() error, err error) {
	if !o.node {
		return nil, nil, errors.New("--location is for --node: add that")
	}
	location, err := parseLocation(o.location)
	if err != nil {
		return nil, nil, err
	}
	private, err := privateURLs(a.environ)
	if err != nil {
		return nil, nil, err
	}
	canvas := nodetools.NewCanvas(private)
	listener, url, err := canvas.Listen()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- canvas.Serve(ctx, listener) }()
	fmt.Fprintf(a.out, "canvas: open %s in a browser of this machine\n", url)
	confirm := func(context.Context, string) bool { return false }
	if isTerminal(a.in) {
		confirm = terminal.confirm
	}
	commands = nodetools.Tools(nodetools.Config{
		Confirm: confirm, Canvas: canvas, Location: location,
		Notify: func(title, body string) {
			if title != "" {
				title += ": "
			}
			fmt.Fprintf(a.out, "notification: %s\n", oneLine(title+body, maxNotification))
		},
	})
	return commands, func() error { cancel(); return <-served }, nil
}

// privateURLs reports whether the canvas may load from private networks, by the variable that says so to a gateway.
func privateURLs(environ []string) (bool, error) {
	const name = envPrefix + "PRIVATE_URLS"
	value := env.ToMap(environ)[name]
	if value == "" {
		return false, nil
	}
	private, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s: must be true or false", name)
	}
	return private, nil
}

// parseLocation reads LATITUDE,LONGITUDE. No text is no location.
func parseLocation(text string) (*nodetools.Location, error) {
	if text == "" {
		return nil, nil
	}
	first, second, _ := strings.Cut(text, ",")
	latitude, err1 := strconv.ParseFloat(strings.TrimSpace(first), 64)
	longitude, err2 := strconv.ParseFloat(strings.TrimSpace(second), 64)
	if err1 != nil || err2 != nil || !(latitude >= -90 && latitude <= 90) || !(longitude >= -180 && longitude <= 180) {
		return nil, fmt.Errorf("--location %q must look like 48.2083,16.3731", text)
	}
	return &nodetools.Location{Latitude: latitude, Longitude: longitude, Source: "flag"}, nil
}
