package desktop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/cmd/farhand/nodetools"
	"github.com/farhand/farhand/ws/client"
)

// Offer is a tool that this machine could have.
type Offer struct {
	Name    string
	Missing string // why it is not offered; empty: it is
	By      string // program or service that does it
	Tool    demotools.Tool
}

// Offers returns all tools, with those that this machine cannot offer.
func (d *Desktop) Offers(ctx context.Context) []Offer {
	var offers []Offer
	for _, s := range specs() {
		w := s.way(d, ctx)
		o := Offer{Name: s.name, Missing: w.missing, By: w.by}
		if w.missing == "" {
			o.Tool = d.tool(s, w.run)
		}
		offers = append(offers, o)
	}
	if d.cfg.Canvas != nil {
		_, missing := d.opener()
		for _, t := range nodetools.CanvasTools(d.cfg.Canvas) {
			if t.Name == "canvas_present" || t.Name == "canvas_navigate" {
				t.Timeout = personTimeout // a page is asked about
			}
			offers = append(offers, Offer{Name: t.Name, Missing: missing, By: "a page in the browser", Tool: t})
		}
	}
	return offers
}

// way is how this machine does the work of a tool.
type way struct {
	by      string // program or service
	run     client.Handler
	missing string // why there is none
}

// lacks returns no way.
func lacks(format string, args ...any) way { return way{missing: fmt.Sprintf(format, args...)} }

// by returns a way whose arguments are decoded into A.
func by[A any](what string, run func(context.Context, client.Call, A) (any, error)) way {
	return way{by: what, run: func(ctx context.Context, call client.Call) (any, error) {
		var args A
		if err := call.Bind(&args); err != nil {
			return nil, err
		}
		return run(ctx, call, args)
	}}
}

// none are the arguments of a tool without parameters.
type none struct{}

// spec describes a tool, as the device page does.
type spec struct {
	name, description string
	properties        string // of its JSON Schema
	required          string // property; empty: none
	effect            effect
	confirm           bool          // whether the gateway asks for approval
	timeout           time.Duration // default of callers
	asks              string        // what the person here is asked before each call; empty: nothing
	way               func(*Desktop, context.Context) way
}

type effect int

const (
	reads effect = iota
	changes
	destroys
	opens // pages of the world
)

// Times that callers wait by default, as on the device page.
const (
	recordingTimeout = 150 * time.Second
	personTimeout    = 5 * time.Minute
)

const (
	sides    = `"facing":{"type":"string","enum":["front","back","both"],"description":"default: back"}`
	duration = `"duration_ms":{"type":"integer","minimum":1000,"maximum":120000,"description":"default: 10000"}`
	inFiles  = `"path":{"type":"string","maxLength":4096,"description":"relative to the shared folder"}`
)

// specs are all tools.
func specs() []spec {
	return append([]spec{
		{"notify", "Show a notification to the person at this computer.",
			`"title":{"type":"string","maxLength":200},"body":{"type":"string","maxLength":2000}`, "body",
			changes, false, 0, "", (*Desktop).notifyWay},
		{"clipboard_read", "Read the text on the clipboard of this computer.", "", "",
			reads, true, personTimeout, "read your clipboard", (*Desktop).clipboardReadWay},
		{"clipboard_write", "Put a text on the clipboard of this computer.",
			fmt.Sprintf(`"text":{"type":"string","maxLength":%d}`, maxClipboard), "text",
			changes, false, 0, "", (*Desktop).clipboardWriteWay},
		{"open_url", "Ask the person at this computer to open a web page in their browser.",
			`"url":{"type":"string","maxLength":8192},"reason":{"type":"string","maxLength":500}`, "url",
			opens, false, personTimeout, "", (*Desktop).openWay},
		{"speak", "Say a text aloud on this computer. The call ends when it has been said.",
			`"text":{"type":"string","minLength":1,"maxLength":4096},"language":{"type":"string","maxLength":35,` +
				`"description":"such as en-GB; default: the computer's"},` +
				`"rate":{"type":"number","minimum":0.5,"maximum":2,"description":"default: 1"}`, "text",
			changes, false, recordingTimeout, "", (*Desktop).speakWay},
		{"location_get", "Return the position of this computer: latitude and longitude in degrees, accuracy in metres.",
			"", "", reads, true, personTimeout, "read where this computer is", (*Desktop).locationWay},
		{"run", "Run a program on this computer, if its person agrees. It is one program with its arguments: no " +
			"shell reads the command, so it has no pipes, redirections, variables or patterns.",
			`"command":{"type":"string","minLength":1,"maxLength":16384}`, "command",
			destroys, true, personTimeout, "", (*Desktop).runWay},
	}, append(recorders(), fileSpecs()...)...)
}

// recorders are the tools that take pictures and record.
func recorders() []spec {
	return []spec{
		{"screenshot", "Take a picture of the screen of this computer.", "", "",
			reads, true, personTimeout, "take a picture of your screen", (*Desktop).screenshotWay},
		{"screen_record", "Record the screen of this computer.", duration, "",
			reads, true, personTimeout + recordingTimeout, "record your screen", (*Desktop).screenRecordWay},
		{"camera_list", "List the cameras of this computer: id, facing, name.", "", "",
			reads, true, 0, "", (*Desktop).cameraListWay},
		{"camera_snap", "Take a picture with a camera of this computer.", sides, "",
			reads, true, personTimeout, "take a picture with your camera", (*Desktop).cameraSnapWay},
		{"camera_clip", "Record a clip with a camera of this computer, with sound if it has a microphone.",
			sides + "," + duration, "",
			reads, true, personTimeout + recordingTimeout, "record with your camera and microphone",
			(*Desktop).cameraClipWay},
		{"audio_clip", "Record sound with the microphone of this computer.", duration, "",
			reads, true, personTimeout + recordingTimeout, "record with your microphone", (*Desktop).audioClipWay},
	}
}

// fileSpecs are the tools for files of the shared folder.
func fileSpecs() []spec {
	return []spec{
		{"file_list", "List a folder of the files that this computer shares: name, type, bytes, modified.", inFiles, "",
			reads, false, 0, "", (*Desktop).fileListWay},
		{"file_read", "Read a file that this computer shares. Text is the output, other content a part.", inFiles,
			"path", reads, false, 0, "", (*Desktop).fileReadWay},
		{"file_write", "Write a text to a file of the folder that this computer shares, instead of what was there. " +
			"Folders on the way are made.",
			inFiles + fmt.Sprintf(`,"text":{"type":"string","maxLength":%d}`, maxWritten), `path","text`,
			destroys, true, personTimeout, "", (*Desktop).fileWriteWay},
	}
}

// tool returns the tool of a spec. If its caller is gone, it asks no question and does nothing.
func (d *Desktop) tool(s spec, run client.Handler) demotools.Tool {
	parameters := `{"type":"object","properties":{` + s.properties + `},"additionalProperties":false`
	if s.required != "" {
		parameters += `,"required":["` + s.required + `"]`
	}
	readOnly, destructive, openWorld := s.effect == reads, s.effect == destroys, s.effect == opens
	t := client.Tool{
		Name: s.name, Description: s.description, Parameters: json.RawMessage(parameters + "}"), Timeout: s.timeout,
		Hints: client.Hints{ReadOnly: &readOnly, Destructive: &destructive},
	}
	if openWorld {
		t.Hints.OpenWorld = &openWorld
	}
	if s.confirm {
		t.SecurityLevel = "user_confirm"
	}
	return demotools.Tool{Tool: t, Handler: func(ctx context.Context, call client.Call) (any, error) {
		ctx, stop := call.Awaited(ctx)
		defer stop()
		if s.asks != "" {
			if err := d.permit(ctx, s.name, "May an agent "+s.asks+"?", true); err != nil {
				return nil, err
			}
		}
		return run(ctx, call)
	}}
}

const (
	maxInline = 512 << 10 // bytes of a file in a result; larger ones are uploaded
	maxMedia  = 64 << 20  // bytes of a recording or a picture
)

// part returns a file as a part of the call's result.
func part(ctx context.Context, call client.Call, p client.Part) (client.Part, error) {
	if len(p.Data) == 0 {
		return p, fmt.Errorf("%s is empty", p.Name)
	}
	if len(p.Data) <= maxInline {
		return p, nil
	}
	data := p.Data
	p.Data = nil
	return call.Upload(ctx, p, int64(len(data)), bytes.NewReader(data))
}

// seconds returns milliseconds as programs take a duration.
func seconds(ms int64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", float64(ms)/1000), "0"), ".")
}
