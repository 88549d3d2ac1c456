package nodetools

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"time"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"github.com/farhand/farhand/ws/client"
)

const (
	pictureWidth  = 480
	pictureHeight = 270
	maxFrames     = 20
	lineHeight    = 18
	maxLetters    = 64 // of one line of text in a picture
)

// painter makes the pictures of a machine that has no camera.
type painter struct{ now func() time.Time }

// cameraNames returns the cameras that are meant.
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

func (p painter) cameras(context.Context, struct{}) (any, error) {
	type camera struct {
		ID     string `json:"id"`
		Facing string `json:"facing"`
		Name   string `json:"name"`
	}
	return []camera{{"front", "front", "test picture"}, {"back", "back", "test picture"}}, nil
}

func (p painter) snap(_ context.Context, args struct{ Facing string }) (any, error) {
	result := client.Result{Output: "A generated test picture: this machine has no camera."}
	for _, name := range cameraNames(args.Facing) {
		var b bytes.Buffer
		if err := png.Encode(&b, p.frame(name, 0)); err != nil {
			return nil, err
		}
		result.Parts = append(result.Parts, client.Part{
			Type: client.PartImage, MIMEType: "image/png", Name: name + ".png", Data: b.Bytes(),
		})
	}
	return result, nil
}

// recording is what is asked for.
type recording struct {
	Facing     string
	DurationMS int64 `json:"duration_ms"` // zero: ten seconds
}

func (p painter) clip(_ context.Context, r recording) (any, error) {
	return p.record(r, cameraNames(r.Facing)...)
}

func (p painter) screen(_ context.Context, r recording) (any, error) { return p.record(r, "screen") }

// record makes animated GIFs that take as long as the recording. They are made at once.
func (p painter) record(r recording, names ...string) (any, error) {
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
			anim.Image = append(anim.Image, p.frame(name, i*100/frames))
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

// bars are the colours of a test picture.
func bars() color.Palette {
	return color.Palette{
		color.Black, color.White, color.RGBA{192, 192, 0, 255}, color.RGBA{0, 192, 192, 255},
		color.RGBA{0, 192, 0, 255}, color.RGBA{192, 0, 192, 255}, color.RGBA{192, 0, 0, 255},
		color.RGBA{0, 0, 192, 255},
	}
}

// frame draws a test picture: coloured bars, what it is and when it was made, and a mark that has moved so far, in
// percent.
func (p painter) frame(name string, moved int) *image.Paletted {
	palette := bars()
	img := image.NewPaletted(image.Rect(0, 0, pictureWidth, pictureHeight), palette)
	width := pictureWidth / (len(palette) - 1)
	for i, c := range palette[1:] {
		draw.Draw(img, image.Rect(i*width, 0, (i+1)*width, pictureHeight), image.NewUniform(c), image.Point{}, draw.Src)
	}
	at := moved * (pictureWidth - 20) / 100
	draw.Draw(img, image.Rect(at, pictureHeight-30, at+20, pictureHeight-10), image.Black, image.Point{}, draw.Src)
	draw.Draw(img, image.Rect(0, 0, pictureWidth, 3*lineHeight), image.Black, image.Point{}, draw.Src)
	write(img, image.White, "farhand test picture: "+name+" (generated)", p.now().UTC().Format(time.RFC3339))
	return img
}

// write writes lines of text into a picture.
func write(img draw.Image, ink image.Image, lines ...string) {
	d := font.Drawer{Dst: img, Src: ink, Face: basicfont.Face7x13}
	for i, line := range lines {
		letters := []rune(line)
		d.Dot = fixed.P(10, (i+1)*lineHeight)
		d.DrawString(string(letters[:min(len(letters), maxLetters)]))
	}
}
