package desktop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// camera is a camera of this machine, and how ffmpeg reads it.
type camera struct {
	ID     string `json:"id"`
	Facing string `json:"facing"` // front, back or unknown
	Name   string `json:"name"`

	input input
}

// warmUp is how long a camera runs before its picture: it finds exposure and focus.
const warmUp = 500 * time.Millisecond

var (
	isFront = regexp.MustCompile(`(?i)front|user|face|selfie|built-?in|integrated|webcam`)
	isBack  = regexp.MustCompile(`(?i)back|rear|environment|world`)
)

func facingOf(name string) string {
	switch {
	case isBack.MatchString(name):
		return "back"
	case isFront.MatchString(name):
		return "front"
	}
	return "unknown"
}

// cameras returns the cameras that are there now.
func (d *Desktop) cameras(ctx context.Context) (found []camera, missing string) {
	switch ffmpeg := d.look("ffmpeg"); {
	case ffmpeg == "":
		return nil, noFFmpeg
	case d.cfg.Camera != "":
		in, _ := parseInput(d.cfg.Camera) // New has checked it
		return []camera{{ID: d.cfg.Camera, Facing: facingOf(in.name), Name: d.cfg.Camera, input: in}}, ""
	case d.system == "darwin":
		for _, c := range d.listed(ctx, "avfoundation", "video") {
			if !strings.HasPrefix(c.name, "Capture screen") {
				found = append(found, camera{c.id, facingOf(c.name), c.name, input{
					"avfoundation", c.id + ":none", []string{"-framerate", "30"},
				}})
			}
		}
	case d.system == "windows":
		for _, c := range d.listed(ctx, "dshow", "video") {
			found = append(found, camera{c.name, facingOf(c.name), c.name, input{"dshow", "video=" + c.name, nil}})
		}
	default:
		found = camerasOfLinux("/sys/class/video4linux", "/dev")
	}
	if len(found) == 0 {
		return nil, "no camera was found"
	}
	return found, ""
}

// camerasOfLinux returns the cameras that Linux shows in a folder. Of the files of one camera the first has its
// pictures.
func camerasOfLinux(shown, devices string) (found []camera) {
	folders, _ := filepath.Glob(filepath.Join(shown, "video*")) // the pattern is valid
	for _, folder := range folders {
		index, _ := os.ReadFile(filepath.Join(folder, "index"))
		name, err := os.ReadFile(filepath.Join(folder, "name"))
		if err != nil || strings.TrimSpace(string(index)) != "0" {
			continue
		}
		id, text := filepath.Join(devices, filepath.Base(folder)), strings.TrimSpace(string(name))
		found = append(found, camera{id, facingOf(text), text, input{"v4l2", id, nil}})
	}
	return found
}

// thing is a camera or a microphone in a list of ffmpeg.
type thing struct{ id, name string }

var (
	header   = regexp.MustCompile(`(?i)\] (?:AVFoundation|DirectShow) (video|audio) devices`)
	numbered = regexp.MustCompile(`\] \[(\d+)\] (.+)$`)               // AVFoundation
	quoted   = regexp.MustCompile(`\] +"([^"]+)"(?: \((\w+)\))?\s*$`) // DirectShow, older versions without the kind
)

// alternate marks the second name of a thing in a list of DirectShow.
const alternate = "Alternative name"

// listed returns what ffmpeg can read with a format, of the kind video or audio. ffmpeg prints the list as an error.
func (d *Desktop) listed(ctx context.Context, format, kind string) []thing {
	out, _ := d.run(ctx, program{
		path: d.look("ffmpeg"), args: []string{"-hide_banner", "-f", format, "-list_devices", "true", "-i", "dummy"},
		both: true,
	})
	return parseList(string(out), kind)
}

// parseList parses such a list.
func parseList(text, kind string) (found []thing) {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := header.FindStringSubmatch(line); m != nil {
			section = m[1]
		} else if m := numbered.FindStringSubmatch(line); m != nil && section == kind {
			found = append(found, thing{m[1], m[2]})
		} else if m := quoted.FindStringSubmatch(line); m != nil && !strings.Contains(line, alternate) &&
			(m[2] == kind || m[2] == "" && section == kind) {
			found = append(found, thing{m[1], m[1]})
		}
	}
	return found
}

func (d *Desktop) cameraListWay(ctx context.Context) way {
	if _, missing := d.cameras(ctx); missing != "" {
		return lacks("%s", missing)
	}
	return by("ffmpeg", func(ctx context.Context, _ client.Call, _ none) (any, error) {
		found, _ := d.cameras(ctx)
		if found == nil {
			found = []camera{} // the last one was removed
		}
		return found, nil
	})
}

type sided struct {
	Facing     string
	DurationMS int64 `json:"duration_ms"` // zero: defaultDuration
}

func (s sided) sides() []string {
	switch s.Facing {
	case "both":
		return []string{"front", "back"}
	case "":
		return []string{"back"}
	}
	return []string{s.Facing}
}

// each calls take with the camera of each side, or the one that comes closest, and returns the parts. All others wait
// until the cameras are free again.
func (d *Desktop) each(
	ctx context.Context, call client.Call, s sided, take func(side string, in input) (client.Part, error),
) (parts []client.Part, err error) {
	release, err := d.camera.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	found, missing := d.cameras(ctx)
	if missing != "" {
		return nil, errors.New(missing)
	}
	for _, side := range s.sides() {
		i := max(0, slices.IndexFunc(found, func(c camera) bool { return c.Facing == side }))
		p, err := take(side, found[i].input)
		if err != nil {
			return nil, err
		}
		if p, err = part(ctx, call, p); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (d *Desktop) cameraSnapWay(ctx context.Context) way {
	if _, missing := d.cameras(ctx); missing != "" {
		return lacks("%s", missing)
	}
	return by("ffmpeg", func(ctx context.Context, call client.Call, args sided) (any, error) {
		parts, err := d.each(ctx, call, args, func(side string, in input) (client.Part, error) {
			data, err := d.still(ctx, in, warmUp)
			return client.Part{
				Type: client.PartImage, MIMEType: "image/jpeg", Name: side + ".jpg", Data: data,
			}, err
		})
		if err != nil {
			return nil, err
		}
		output := "A picture."
		if len(parts) > 1 {
			output = "Two pictures: front, then back."
		}
		return client.Result{Output: output, Parts: parts}, nil
	})
}

func (d *Desktop) cameraClipWay(ctx context.Context) way {
	if _, missing := d.cameras(ctx); missing != "" {
		return lacks("%s", missing)
	}
	return by("ffmpeg", func(ctx context.Context, call client.Call, args sided) (any, error) {
		sound, noSound := d.soundInput(ctx)
		length := recording{ms: args.DurationMS}.length()
		parts, err := d.each(ctx, call, args, func(side string, in input) (client.Part, error) {
			r := recording{inputs: []input{in}, video: true, name: side + ".mp4", ms: args.DurationMS}
			if noSound == "" {
				release, err := d.microphone.take(ctx)
				if err != nil {
					return client.Part{}, err
				}
				defer release()
				r.inputs = append(r.inputs, sound)
			}
			data, err := d.record(ctx, call, r)
			return client.Part{Type: client.PartFile, MIMEType: "video/mp4", Name: r.name, Data: data}, err
		})
		if err != nil {
			return nil, err
		}
		output := "A clip of " + strconv.FormatFloat(length.Seconds(), 'f', -1, 64) + " seconds"
		if noSound == "" {
			output += " with sound"
		}
		return client.Result{Output: output + ".", Parts: parts}, nil
	})
}
