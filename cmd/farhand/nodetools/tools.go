package nodetools

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/ws/client"
)

// Config is what the commands need from the machine they run on.
type Config struct {
	Notify  func(title, body string)                       // shows a notification
	Confirm func(ctx context.Context, command string) bool // asks the person here whether a command may run
	Canvas  *Canvas

	Location *Location // nil: location_get is not offered
}

// Location is the position that the machine reports.
type Location struct {
	Latitude  float64 `json:"latitude"`  // degrees
	Longitude float64 `json:"longitude"` // degrees
	Source    string  `json:"source"`
}

// confirmed is the security level of commands that need a person's confirmation.
const confirmed = "user_confirm"

const (
	facing   = `"facing":{"type":"string","enum":["front","back","both"],"description":"default: back"}`
	duration = `"duration_ms":{"type":"integer","minimum":1000,"maximum":120000}`
)

func object(properties string, required ...string) string {
	if len(required) > 0 {
		return fmt.Sprintf(`{"type":"object","properties":{%s},"required":["%s"],"additionalProperties":false}`,
			properties, strings.Join(required, `","`))
	}
	return `{"type":"object","properties":{` + properties + `},"additionalProperties":false}`
}

// Tools returns the commands.
func Tools(cfg Config) []demotools.Tool {
	tools := []demotools.Tool{
		newTool("notify", "", changes(), "Show a notification to the person at this machine.",
			object(`"title":{"type":"string"},"body":{"type":"string"}`, "body"), cfg.notify),
		newTool("camera_snap", confirmed, reads(), "Take a picture. This machine returns a test picture.",
			object(facing), snap),
		newTool("camera_list", confirmed, reads(), "List the cameras of this machine.", object(""), cameras),
		newTool("camera_clip", confirmed, reads(), "Record a clip. This machine returns moving test pictures.",
			object(facing+","+duration), clip),
		newTool("screen_record", confirmed, reads(),
			"Record the screen. This machine returns moving test pictures.", object(duration), screen),
		newTool("run", confirmed, destroys(), "Run a shell command on this machine, if the person at it agrees.",
			object(`"command":{"type":"string","minLength":1,"maxLength":16384}`, "command"), cfg.run),
	}
	tools = append(tools, CanvasTools(cfg.Canvas)...)
	if cfg.Location != nil {
		tools = append(tools, newTool("location_get", confirmed, reads(), "Return this machine's configured location.",
			object(""), func(context.Context, struct{}) (any, error) { return *cfg.Location, nil }))
	}
	return tools
}

// CanvasTools returns the commands of a canvas.
func CanvasTools(c *Canvas) []demotools.Tool {
	return []demotools.Tool{
		newTool("canvas_present", "", changes(), "Show the canvas, with a page if a url is given.",
			object(`"url":{"type":"string"}`), c.present),
		newTool("canvas_hide", "", changes(), "Hide the canvas.", object(""), c.hide),
		newTool("canvas_navigate", "", changes(), "Show another page on the canvas.",
			object(`"url":{"type":"string","minLength":1}`, "url"), c.navigate),
		newTool("canvas_eval", confirmed, destroys(), "Run JavaScript in the page on the canvas, and return "+
			"its value as JSON.", object(`"javaScript":{"type":"string","minLength":1}`, "javaScript"), c.eval),
		newTool("canvas_snapshot", "", reads(), "Draw the content presented on the canvas. This is not a screenshot.",
			object(`"quality":{"type":"integer","minimum":1,"maximum":100}`), c.snapshot),
		newTool("canvas_a2ui_push", "", changes(), "Add A2UI content to the canvas: one JSON object on each line.",
			object(`"jsonl":{"type":"string","minLength":1}`, "jsonl"), c.push),
		newTool("canvas_a2ui_reset", "", changes(), "Remove all A2UI content from the canvas.", object(""), c.reset),
	}
}

func (cfg Config) notify(_ context.Context, args struct{ Title, Body string }) (any, error) {
	cfg.Notify(args.Title, args.Body)
	return "shown on the terminal", nil
}

// run runs a command after the person at the machine has agreed to it.
func (cfg Config) run(ctx context.Context, args struct{ Command string }) (any, error) {
	if !cfg.Confirm(ctx, args.Command) {
		return nil, errors.New("the person at this machine did not allow the command")
	}
	return runCommand(ctx, args.Command)
}

// newTool returns a command. If its caller is gone, it asks no question and runs nothing.
func newTool[A any](name, level string, hints client.Hints, description, parameters string,
	run func(context.Context, A) (any, error)) demotools.Tool {
	t := demotools.NewTool(name, description, parameters, run)
	t.SecurityLevel, t.Hints = level, hints
	decoded := t.Handler
	t.Handler = func(ctx context.Context, call client.Call) (any, error) {
		ctx, stop := call.Awaited(ctx)
		defer stop()
		return decoded(ctx, call)
	}
	return t
}

// reads, changes and destroys are the effects of commands.
func reads() client.Hints    { return hints(true, false) }
func changes() client.Hints  { return hints(false, false) }
func destroys() client.Hints { return hints(false, true) }

func hints(readOnly, destructive bool) client.Hints {
	return client.Hints{ReadOnly: &readOnly, Destructive: &destructive}
}

const (
	pictureWidth  = 480
	pictureHeight = 270
	maxFrames     = 20
	lineHeight    = 18
	maxLetters    = 64 // of one line of text in a picture
)

func cameraNames(facing string) []string {
	switch facing {
	case "both":
		return []string{"front", "back"}
	case "front":
		return []string{"front"}
	default:
		return []string{"back"}
	}
}

func cameras(context.Context, struct{}) (any, error) {
	type camera struct {
		ID     string `json:"id"`
		Facing string `json:"facing"`
		Name   string `json:"name"`
	}
	return []camera{{"front", "front", "test picture"}, {"back", "back", "test picture"}}, nil
}

func snap(_ context.Context, args struct{ Facing string }) (any, error) {
	result := client.Result{Output: "A generated test picture: this machine has no camera."}
	for _, name := range cameraNames(args.Facing) {
		var b bytes.Buffer
		if err := png.Encode(&b, frame(name, 0)); err != nil {
			return nil, err
		}
		result.Parts = append(result.Parts, client.Part{
			Type: client.PartImage, MIMEType: "image/png", Name: name + ".png", Data: b.Bytes(),
		})
	}
	return result, nil
}

type recording struct {
	Facing     string
	DurationMS int64 `json:"duration_ms"` // zero: ten seconds
}

func clip(_ context.Context, r recording) (any, error) {
	return record(r, cameraNames(r.Facing)...)
}

func screen(_ context.Context, r recording) (any, error) { return record(r, "screen") }

// record makes animated GIFs of the requested length. It does not wait that long.
func record(r recording, names ...string) (any, error) {
	if r.DurationMS <= 0 {
		r.DurationMS = 10_000
	}
	length := time.Duration(r.DurationMS) * time.Millisecond
	result := client.Result{
		Output: fmt.Sprintf("Generated moving test pictures of %v: this machine records nothing.", length),
	}
	frames := int(min(max(r.DurationMS/500, 2), maxFrames))
	for _, name := range names {
		var anim gif.GIF
		for i := range frames {
			anim.Image = append(anim.Image, frame(name, i*100/frames))
			anim.Delay = append(anim.Delay, int(r.DurationMS/10)/frames)
		}
		var b bytes.Buffer
		if err := gif.EncodeAll(&b, &anim); err != nil {
			return nil, err
		}
		result.Parts = append(result.Parts, client.Part{
			Type: client.PartFile, MIMEType: "image/gif", Name: name + ".gif", Data: b.Bytes(),
		})
	}
	return result, nil
}

func bars() color.Palette {
	return color.Palette{
		color.Black, color.White, color.RGBA{192, 192, 0, 255}, color.RGBA{0, 192, 192, 255},
		color.RGBA{0, 192, 0, 255}, color.RGBA{192, 0, 192, 255}, color.RGBA{192, 0, 0, 255},
		color.RGBA{0, 0, 192, 255},
	}
}

// frame draws a test picture: coloured bars, its name and time, and a mark at the position moved, in percent.
func frame(name string, moved int) *image.Paletted {
	palette := bars()
	img := image.NewPaletted(image.Rect(0, 0, pictureWidth, pictureHeight), palette)
	width := pictureWidth / (len(palette) - 1)
	for i, c := range palette[1:] {
		draw.Draw(img, image.Rect(i*width, 0, (i+1)*width, pictureHeight), image.NewUniform(c), image.Point{}, draw.Src)
	}
	at := moved * (pictureWidth - 20) / 100
	draw.Draw(img, image.Rect(at, pictureHeight-30, at+20, pictureHeight-10), image.Black, image.Point{}, draw.Src)
	draw.Draw(img, image.Rect(0, 0, pictureWidth, 3*lineHeight), image.Black, image.Point{}, draw.Src)
	write(img, color.White, "farhand test picture: "+name+" (generated)", time.Now().UTC().Format(time.RFC3339))
	return img
}

// font has the printable characters of ASCII and U+FFFD, from the public domain X11 font 7x13: a byte for each row of
// each character, whose lowest six bits are the row's pixels, the highest one on the left.
//
//go:embed font.bin
var font string

const (
	letterRows    = 13
	letterWidth   = 6 // pixels; the next letter begins one later
	rowsAboveLine = 11
)

// write writes lines of text into a picture.
func write(img draw.Image, ink color.Color, lines ...string) {
	for i, line := range lines {
		letters := []rune(line)
		for j, letter := range letters[:min(len(letters), maxLetters)] {
			if letter < ' ' || letter > '~' {
				letter = '~' + 1 // U+FFFD
			}
			drawLetter(img, ink, 10+j*(letterWidth+1), (i+1)*lineHeight-rowsAboveLine, int(letter-' '))
		}
	}
}

// drawLetter draws the character at a position in font, with its upper left corner at x and y.
func drawLetter(img draw.Image, ink color.Color, x, y, position int) {
	for row := range letterRows {
		pixels := font[position*letterRows+row]
		for column := range letterWidth {
			if pixels>>(letterWidth-1-column)&1 == 1 {
				img.Set(x+column, y+row, ink)
			}
		}
	}
}
