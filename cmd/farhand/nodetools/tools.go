package nodetools

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/ws/client"
)

// Config is what the commands need of the machine they run on.
type Config struct {
	Notify  func(title, body string)                       // shows a notification
	Confirm func(ctx context.Context, command string) bool // asks whoever sits here whether a command may run
	Canvas  *Canvas

	Location *Location        // nil: location_get is not offered
	Now      func() time.Time // default: time.Now
}

// Location is where the machine is said to be.
type Location struct {
	Latitude  float64 `json:"latitude"`  // degrees
	Longitude float64 `json:"longitude"` // degrees
	Source    string  `json:"source"`
}

// confirmed is the level of commands that a person is asked about.
const confirmed = "user_confirm"

const (
	noParameters = `{"type":"object","properties":{},"additionalProperties":false}`
	facing       = `"facing":{"type":"string","enum":["front","back","both"],"description":"default: back"}`
	duration     = `"duration_ms":{"type":"integer","minimum":1000,"maximum":120000}`
)

// Tools returns the commands.
func Tools(cfg Config) []demotools.Tool {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p, c := painter{cfg.Now}, cfg.Canvas
	tools := []demotools.Tool{
		newTool("notify", "", changes(), "Show a notification to the person at this machine.",
			`{"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"}},`+
				`"required":["body"],"additionalProperties":false}`, cfg.notify),
		newTool("camera_snap", confirmed, reads(), "Take a picture. This machine has a test picture for a camera.",
			`{"type":"object","properties":{`+facing+`},"additionalProperties":false}`, p.snap),
		newTool("camera_list", confirmed, reads(), "List the cameras of this machine.", noParameters, p.cameras),
		newTool("camera_clip", confirmed, reads(), "Record a clip. This machine has moving test pictures for a camera.",
			`{"type":"object","properties":{`+facing+`,`+duration+`},"additionalProperties":false}`, p.clip),
		newTool("screen_record", confirmed, reads(),
			"Record the screen. This machine makes moving test pictures instead.",
			`{"type":"object","properties":{`+duration+`},"additionalProperties":false}`, p.screen),
		newTool("run", confirmed, destroys(), "Run a shell command on this machine, if the person at it agrees.",
			`{"type":"object","properties":{"command":{"type":"string","minLength":1,"maxLength":16384}},`+
				`"required":["command"],"additionalProperties":false}`, cfg.run),
		newTool("canvas_present", "", changes(), "Show the canvas, with a page if a url is given.",
			`{"type":"object","properties":{"url":{"type":"string"}},"additionalProperties":false}`, c.present),
		newTool("canvas_hide", "", changes(), "Hide the canvas.", noParameters, c.hide),
		newTool("canvas_navigate", "", changes(), "Show another page on the canvas.",
			`{"type":"object","properties":{"url":{"type":"string","minLength":1}},"required":["url"],`+
				`"additionalProperties":false}`, c.navigate),
		newTool("canvas_eval", confirmed, destroys(), "Run JavaScript in the page on the canvas, and return "+
			"its value as JSON.",
			`{"type":"object","properties":{"javaScript":{"type":"string","minLength":1}},"required":["javaScript"],`+
				`"additionalProperties":false}`, c.eval),
		newTool("canvas_snapshot", "", reads(), "Draw what the canvas was told to show. This is no screenshot.",
			`{"type":"object","properties":{"quality":{"type":"integer","minimum":1,"maximum":100}},`+
				`"additionalProperties":false}`, c.snapshot),
		newTool("canvas_a2ui_push", "", changes(), "Add A2UI content to the canvas: one JSON object on each line.",
			`{"type":"object","properties":{"jsonl":{"type":"string","minLength":1}},"required":["jsonl"],`+
				`"additionalProperties":false}`, c.push),
		newTool("canvas_a2ui_reset", "", changes(), "Remove all A2UI content from the canvas.", noParameters, c.reset),
	}
	if cfg.Location != nil {
		tools = append(tools, newTool("location_get", confirmed, reads(), "Tell where this machine is said to be.",
			noParameters, func(context.Context, struct{}) (any, error) { return *cfg.Location, nil }))
	}
	return tools
}

func (cfg Config) notify(_ context.Context, args struct{ Title, Body string }) (any, error) {
	cfg.Notify(args.Title, args.Body)
	return "shown on the terminal", nil
}

// run runs a command once the person at the machine has agreed to it.
func (cfg Config) run(ctx context.Context, args struct{ Command string }) (any, error) {
	if !cfg.Confirm(ctx, args.Command) {
		return nil, errors.New("the person at this machine did not agree to run it")
	}
	return runCommand(ctx, args.Command)
}

// newTool returns a command whose arguments are decoded into A.
func newTool[A any](name, level string, hints client.Hints, description, parameters string,
	run func(context.Context, A) (any, error)) demotools.Tool {
	return demotools.Tool{
		Tool: client.Tool{
			Name: name, Description: description, Parameters: json.RawMessage(parameters), Hints: hints,
			SecurityLevel: level,
		},
		Handler: func(ctx context.Context, call client.Call) (any, error) {
			var args A
			if err := call.Bind(&args); err != nil {
				return nil, err
			}
			ctx, stop := call.Awaited(ctx) // a person is not asked, and no command runs, for a caller that is gone
			defer stop()
			return run(ctx, args)
		},
	}
}

// reads, changes and destroys are what a command does to the world.
func reads() client.Hints    { return hints(true, false) }
func changes() client.Hints  { return hints(false, false) }
func destroys() client.Hints { return hints(false, true) }

func hints(readOnly, destructive bool) client.Hints {
	return client.Hints{ReadOnly: &readOnly, Destructive: &destructive}
}
