package desktop

import (
	"bytes"
	"context"
	"fmt"
	"image/jpeg"
	"image/png"
	"path/filepath"
	"strings"

	"github.com/farhand/farhand/ws/client"
)

const (
	noDisplay = "there is no display: neither WAYLAND_DISPLAY nor DISPLAY is set"
	noFFmpeg  = "ffmpeg is missing"
)

// screenProgram returns the program that writes a picture of the screen into a file. args are what comes before the
// file's name.
func (d *Desktop) screenProgram() (p program, missing string) {
	var name string
	switch {
	case d.system == "darwin":
		p.path = d.look("screencapture")
		p.args = []string{"-x", "-t", "png"}
	case d.vars["WAYLAND_DISPLAY"] != "":
		// Each desktop lets only its own program see the screen.
		name = "grim"
		switch shell := strings.ToUpper(d.vars["XDG_CURRENT_DESKTOP"]); {
		case strings.Contains(shell, "GNOME"):
			name, p.args = "gnome-screenshot", []string{"-f"}
		case strings.Contains(shell, "KDE"):
			name, p.args = "spectacle", []string{"--background", "--nonotify", "--fullscreen", "--output"}
		}
		if p.path = d.look(name); p.path == "" {
			return p, name + " is missing"
		}
	case d.vars["DISPLAY"] != "":
		switch name, p.path = d.first("maim", "scrot", "import"); name {
		case "import": // of ImageMagick
			p.args = []string{"-silent", "-window", "root"}
		case "scrot":
			p.args = []string{"--silent", "--overwrite"}
		}
	default:
		return p, noDisplay
	}
	if p.path == "" {
		return p, "maim, scrot, ImageMagick and ffmpeg are missing"
	}
	return p, ""
}

func (d *Desktop) screenshotWay(ctx context.Context) way {
	if d.system == "windows" {
		if d.look(powershell) == "" {
			return lacks("PowerShell is missing")
		}
		return screenshot("PowerShell", func(ctx context.Context) ([]byte, error) {
			return intoFile(func(file string) error {
				_, err := d.powershell(ctx, "screenshot", struct{ File string }{file})
				return err
			})
		})
	}
	p, missing := d.screenProgram()
	if missing == "" {
		return screenshot(filepath.Base(p.path), func(ctx context.Context) ([]byte, error) {
			return intoFile(func(file string) error {
				p := p
				p.args = append(p.args[:len(p.args):len(p.args)], file)
				_, err := d.run(ctx, p)
				return err
			})
		})
	}
	if d.system == "linux" && d.vars["WAYLAND_DISPLAY"] != "" {
		if none := d.portal(ctx); none != "" {
			return lacks("%s, and %s", missing, none)
		}
		return screenshot(portalScreen, d.portalScreenshot)
	}
	if in, missing := d.screenInput(); missing == "" && d.system != "darwin" {
		return screenshot("ffmpeg", func(ctx context.Context) ([]byte, error) { return d.still(ctx, in, 0) })
	}
	return lacks("%s", missing)
}

// intoFile calls write with the name of a picture, and returns what it has written.
func intoFile(write func(file string) error) (data []byte, err error) {
	err = inFolder(func(dir string) error {
		file := filepath.Join(dir, "screen.png")
		if err := write(file); err != nil {
			return err
		}
		data, err = readBounded(file)
		return err
	})
	return data, err
}

// screenshot returns a way to take pictures of the screen. Large ones become JPEGs, which are a fifth of their size.
func screenshot(program string, take func(context.Context) ([]byte, error)) way {
	return by(program, func(ctx context.Context, call client.Call, _ none) (any, error) {
		data, err := take(ctx)
		if err != nil {
			return nil, err
		}
		picture := client.Part{Type: client.PartImage, MIMEType: "image/png", Name: "screen.png", Data: data}
		if isJPEG := bytes.HasPrefix(data, []byte("\xff\xd8")); isJPEG || len(data) > maxInline {
			if picture.MIMEType, picture.Name = "image/jpeg", "screen.jpg"; !isJPEG {
				if picture.Data, err = asJPEG(data); err != nil {
					return nil, err
				}
			}
		}
		if picture, err = part(ctx, call, picture); err != nil {
			return nil, err
		}
		return client.Result{Output: "A picture of the screen.", Parts: []client.Part{picture}}, nil
	})
}

// maxPixels bounds the pictures that are decoded here: about five large screens.
const maxPixels = 48 << 20

func asJPEG(data []byte) ([]byte, error) {
	size, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the picture of the screen is no PNG: %w", err)
	}
	if size.Width*size.Height > maxPixels {
		return nil, fmt.Errorf("the picture of the screen has %d × %d pixels, more than %d", size.Width, size.Height,
			maxPixels)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = jpeg.Encode(&b, picture, &jpeg.Options{Quality: 85})
	return b.Bytes(), err
}

// screenInput returns the screen as ffmpeg reads it.
func (d *Desktop) screenInput() (in input, missing string) {
	if d.look("ffmpeg") == "" {
		return in, noFFmpeg
	}
	switch {
	case d.system == "windows":
		return input{"gdigrab", "desktop", []string{"-framerate", frameRate}}, ""
	case d.vars["WAYLAND_DISPLAY"] != "":
		return in, "Wayland lets ffmpeg record no screen; log in to a session with X11"
	case d.vars["DISPLAY"] != "":
		return input{"x11grab", d.vars["DISPLAY"], []string{"-framerate", frameRate}}, ""
	}
	return in, noDisplay
}

type lasting struct {
	DurationMS int64 `json:"duration_ms"` // zero: defaultDuration
}

func (d *Desktop) screenRecordWay(context.Context) way {
	if d.system == "darwin" {
		return d.screencaptureWay()
	}
	in, missing := d.screenInput()
	if missing != "" {
		return lacks("%s", missing)
	}
	return by("ffmpeg", func(ctx context.Context, call client.Call, args lasting) (any, error) {
		data, err := d.record(ctx, call, recording{
			inputs: []input{in}, video: true, name: "screen.mp4", ms: args.DurationMS,
		})
		return recorded(ctx, call, client.Part{MIMEType: "video/mp4", Name: "screen.mp4", Data: data}, err)
	})
}

// screencaptureWay records with the program of macOS.
func (d *Desktop) screencaptureWay() way {
	path := d.look("screencapture")
	if path == "" {
		return lacks("screencapture is missing")
	}
	return by("screencapture", func(ctx context.Context, call client.Call, args lasting) (any, error) {
		r := recording{ms: args.DurationMS}
		length := r.length()
		stop := follow(call, length)
		defer stop()
		var data []byte
		err := inFolder(func(dir string) (err error) {
			file := filepath.Join(dir, "screen.mov")
			if _, err = d.run(ctx, program{
				path: path, args: []string{"-x", "-v", "-V", seconds(length.Milliseconds()), file},
				time: 2*length + startTime,
			}); err == nil {
				data, err = readBounded(file)
			}
			return err
		})
		return recorded(ctx, call, client.Part{MIMEType: "video/quicktime", Name: "screen.mov", Data: data}, err)
	})
}

// recorded returns the result of a recording of the screen.
func recorded(ctx context.Context, call client.Call, file client.Part, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	file.Type = client.PartFile
	if file, err = part(ctx, call, file); err != nil {
		return nil, err
	}
	return client.Result{Output: "A recording of the screen.", Parts: []client.Part{file}}, nil
}
