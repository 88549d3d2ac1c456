package commands

import (
	"encoding/base64"
	"strings"

	"github.com/farhand/farhand/registry"
)

func invalidArguments(format string, args ...any) error {
	return registry.Errorf(registry.CodeInvalidArguments, format, args...).With(registry.DispatchedNo)
}

// snap takes one picture, or one of each camera. Nodes take one at a time. Linux has no facing: it takes one.
func snap(c *Catalog, r request) (Invocation, error) {
	facing, rest := r.args.text("facing"), without(r.members, "facing")
	take := func(facing string) Invocation {
		members := rest
		if facing != "" && c.platform != linux {
			members = with(rest[:len(rest):len(rest)], "facing", quoted(facing))
		}
		return Invocation{Command: cameraSnap, Params: encodeObject(members)}
	}
	if facing != "both" || c.platform == linux {
		return take(facing), nil
	}
	if r.args["device_id"] != nil {
		return Invocation{}, invalidArguments("device_id: names one camera, so facing must not be both")
	}
	front, back := take("front"), take("back")
	front.next = func(a Answer) Step {
		first := After(c, r.tool, Invocation{}, a)
		if !first.Result.Success {
			return first
		}
		second := back
		second.next = func(a Answer) Step {
			return Step{Result: both(first.Result, After(c, r.tool, Invocation{}, a).Result)}
		}
		return Step{Invoke: &second}
	}
	return front, nil
}

const cameraSnap = "camera.snap"

// both joins the results of the front and the back camera.
func both(front, back registry.Result) registry.Result {
	if !back.Success {
		return back
	}
	res := registry.Result{Success: true, Output: "front: " + front.Output + "\nback: " + back.Output}
	for _, of := range []struct {
		name string
		registry.Result
	}{{"front", front}, {"back", back}} {
		for _, p := range of.Parts {
			p.Name = of.name + extension(p.MIMEType)
			res.Parts = append(res.Parts, p)
		}
	}
	return res
}

func without(members []member, name string) []member {
	kept := members[:0:0]
	for _, m := range members {
		if string(m.Name) != name {
			kept = append(kept, m)
		}
	}
	return kept
}

// ptz moves a camera. The node has the axes in an object of their own.
func ptz(_ *Catalog, r request) (Invocation, error) {
	var axes []member
	rest := r.members
	for _, name := range [...]string{"panDegrees", "tiltDegrees", "zoomPercent"} {
		for _, m := range r.members {
			if string(m.Name) == name {
				axes = append(axes, m)
			}
		}
		rest = without(rest, name)
	}
	operation := r.args.text("operation")
	switch {
	case operation == "home" && len(axes) > 0:
		return Invocation{}, invalidArguments(
			"home moves all axes: leave out pan_degrees, tilt_degrees and zoom_percent")
	case operation != "home" && len(axes) == 0:
		return Invocation{}, invalidArguments("%s needs pan_degrees, tilt_degrees or zoom_percent", operation)
	case operation == "set":
		rest = with(rest, "target", encodeObject(axes))
	case operation == "move":
		rest = with(rest, "delta", encodeObject(axes))
	}
	return Invocation{Command: "camera.ptz.control", Params: encodeObject(rest)}, nil
}

// pushMessages pushes A2UI content as an array, to nodes that do not take lines.
func pushMessages(_ *Catalog, r request) (Invocation, error) {
	list := []byte{'['}
	for line := range strings.Lines(r.args.text("jsonl")) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		message, err := registry.ParseJSON([]byte(line))
		if err != nil || !message.IsObject() {
			return Invocation{}, invalidArguments("jsonl: each line must be a JSON object")
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, message.Raw()...)
	}
	if len(list) == 1 {
		return Invocation{}, invalidArguments("jsonl: has no lines")
	}
	params := encodeObject(with(nil, "messages", append(list, ']')))
	return Invocation{Command: "canvas.a2ui.push", Params: params}, nil
}

// writeFile writes a text, or bytes in base64. The node takes only base64.
func writeFile(_ *Catalog, r request) (Invocation, error) {
	content, encoded := r.args["text"], r.args["content_base64"]
	if (content == nil) == (encoded == nil) {
		return Invocation{}, invalidArguments("either text or content_base64 must be there")
	}
	members := without(r.members, "text")
	if content != nil {
		code := base64.StdEncoding.EncodeToString([]byte(r.args.text("text")))
		members = with(members, "contentBase64", quoted(code))
	}
	return Invocation{Command: "file.write", Params: encodeObject(members)}, nil
}
