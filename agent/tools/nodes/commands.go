package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
)

// command is the device command of an action.
type command struct {
	name  string   // name of the device's tool
	takes []string // arguments that are passed on unchanged if given
	needs string   // the required argument; empty: none
	timed bool     // takes a duration, sent as duration_ms
}

// nodeCommands returns the commands of the tool nodes, by action.
func nodeCommands() map[string]command {
	return map[string]command{
		"notify":        {name: "notify", takes: []string{"title", "body"}, needs: "body"},
		"camera_snap":   {name: "camera_snap", takes: []string{"facing"}},
		"camera_list":   {name: "camera_list"},
		"camera_clip":   {name: "camera_clip", takes: []string{"facing"}, timed: true},
		"screen_record": {name: "screen_record", timed: true},
		"location_get":  {name: "location_get"},
		"run":           {name: "run", takes: []string{"command"}, needs: "command"},

		"screen_snapshot":    {name: "screen_snapshot"},
		"photos_latest":      {name: "photos_latest", takes: []string{"limit"}},
		"notifications_list": {name: "notifications_list"},
		"device_info":        {name: "device_info"},
		"device_status":      {name: "device_status"},
		"device_health":      {name: "device_health"},
		"device_permissions": {name: "device_permissions"},
		"which":              {name: "which", takes: []string{"bins"}, needs: "bins"},
	}
}

// canvasCommands returns the commands of the tool canvas, by action.
func canvasCommands() map[string]command {
	return map[string]command{
		"present":    {name: "canvas_present", takes: []string{"url"}},
		"hide":       {name: "canvas_hide"},
		"navigate":   {name: "canvas_navigate", takes: []string{"url"}, needs: "url"},
		"eval":       {name: "canvas_eval", takes: []string{"javaScript"}, needs: "javaScript"},
		"snapshot":   {name: "canvas_snapshot", takes: []string{"quality"}},
		"a2ui_push":  {name: "canvas_a2ui_push", takes: []string{"jsonl"}, needs: "jsonl"},
		"a2ui_reset": {name: "canvas_a2ui_reset"},
	}
}

// arguments are the arguments of a call by name. Empty strings and null count as absent, because models send them so.
type arguments map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*map[string]json.RawMessage)(a)); err != nil {
		return err
	}
	maps.DeleteFunc(*a, func(_ string, value json.RawMessage) bool {
		return string(value) == `""` || string(value) == "null"
	})
	return nil
}

// text returns a string argument, or "" if it is absent.
func (a arguments) text(name string) string {
	var s string
	_ = json.Unmarshal(a[name], &s) // the schema was checked
	return s
}

// check returns all faults of the arguments of a command.
func (c command) check(a arguments, urls publicnet.Guard) error {
	var errs []error
	if c.needs != "" && a[c.needs] == nil {
		errs = append(errs, fmt.Errorf("the action needs %s", c.needs))
	}
	if c.timed {
		_, err := readDuration(a["duration"])
		errs = append(errs, err)
	}
	return errors.Join(append(errs, checkContent(c.name, a, urls))...)
}

// checkContent checks the arguments of canvas commands: URLs to load, and content to show. A device may take a name in
// another case.
func checkContent(name string, a arguments, urls publicnet.Guard) error {
	switch name {
	case "canvas_present", "canvas_navigate":
		for name := range a {
			if url := a.text(name); url != "" && strings.EqualFold(name, "url") {
				if err := urls.CheckURL(url); err != nil {
					return fmt.Errorf("url: %w", err)
				}
			}
		}
	case "canvas_a2ui_push":
		return checkLines(a.text("jsonl"))
	}
	return nil
}

// forDevice returns the arguments for the device, and the timeout of the command. Zero means the timeout of the
// device's tool.
func (c command) forDevice(a arguments) (registry.JSON, time.Duration, error) {
	out, timeout := make(map[string]any), time.Duration(0)
	for _, name := range c.takes {
		if a[name] != nil {
			out[name] = a[name]
		}
	}
	if c.timed {
		d, err := readDuration(a["duration"])
		if err != nil {
			return registry.JSON{}, 0, err
		}
		out["duration_ms"], timeout = d.Milliseconds(), d+recordingMargin
	}
	text, err := json.Marshal(out)
	if err != nil {
		return registry.JSON{}, 0, err
	}
	args, err := registry.ParseJSON(text)
	return args, timeout, err
}

// recordingMargin is how long a device may take to start a recording and to deliver it, beyond its duration.
const recordingMargin = 30 * time.Second

// run runs a command on a device.
func (c command) run(ctx context.Context, r reach, id string, a arguments) (registry.Result, error) {
	args, timeout, err := c.forDevice(a)
	if err != nil {
		return registry.Result{}, err
	}
	return r.call(ctx, id, c.name, args, timeout)
}

// canvas is the tool canvas. It controls the surface on which a device shows pages.
type canvas struct {
	reach
	urls publicnet.Guard
}

func canvasSpec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: nameCanvas,
		Description: "Control the canvas of a device: present it (optionally with a url), hide it, " +
			"navigate to a url, eval JavaScript in its page, take a snapshot, push A2UI content as JSON lines, or " +
			"reset that content.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"action":{"type":"string","enum":["present","hide","navigate","eval","snapshot","a2ui_push",` +
			`"a2ui_reset"]},` +
			`"node":{"type":"string","maxLength":256,"description":"device_id or session of the device; may ` +
			`be omitted if only one device has a canvas"},` +
			`"url":{"type":"string","maxLength":8192,"description":"http or https; for present and navigate"},` +
			`"javaScript":{"type":"string","maxLength":65536,"description":"for eval"},` +
			`"quality":{"type":"integer","minimum":1,"maximum":100,"description":"for snapshot"},` +
			`"jsonl":{"type":"string","maxLength":262144,"description":"for a2ui_push: one JSON object on each ` +
			`line"}},` +
			`"required":["action"],"additionalProperties":false}`),
	}
}

func (c canvas) check(a arguments) error {
	return canvasCommands()[a.text("action")].check(a, c.urls)
}

func (c canvas) run(ctx context.Context, a arguments) (registry.Result, error) {
	cmd, ok := canvasCommands()[a.text("action")]
	if !ok {
		return registry.Result{}, fmt.Errorf("there is no action %q", a.text("action"))
	}
	return cmd.run(ctx, c.reach, a.text("node"), a)
}

// Durations of recordings.
const (
	defaultRecording = 10 * time.Second
	minRecording     = time.Second
	maxRecording     = 2 * time.Minute
)

// readDuration parses the duration of a recording: a Go duration, or a number of seconds. If absent, it is
// defaultRecording.
func readDuration(arg json.RawMessage) (time.Duration, error) {
	if arg == nil {
		return defaultRecording, nil
	}
	text := strings.Trim(strings.TrimSpace(strings.Trim(string(arg), `"`)), " ")
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil {
		return 0, errors.New(`duration: write it as "10s", "1m30s", or in seconds`)
	}
	if d < minRecording || d > maxRecording {
		return 0, fmt.Errorf("duration: must be from %v to %v", minRecording, maxRecording)
	}
	return d, nil
}

// Limits of one push to a canvas.
const (
	maxLines     = 1000
	maxLineBytes = 64 << 10
	maxPush      = 256 << 10 // bytes
)

// checkLines checks JSON lines: each non-empty line must be a JSON object.
func checkLines(text string) error {
	if len(text) > maxPush {
		return fmt.Errorf("jsonl: has %d bytes; a push may have at most %d", len(text), maxPush)
	}
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		n++
		parsed, err := registry.ParseJSON([]byte(line))
		switch {
		case n > maxLines:
			return fmt.Errorf("jsonl: a push may have at most %d lines", maxLines)
		case len(line) > maxLineBytes:
			return fmt.Errorf("jsonl: line %d has more than %d bytes", n, maxLineBytes)
		case err != nil || !parsed.IsObject():
			return errors.New("jsonl: line " + strconv.Itoa(n) + " is not a JSON object")
		}
	}
	if n == 0 && text != "" {
		return errors.New("jsonl: has no lines")
	}
	return nil
}
