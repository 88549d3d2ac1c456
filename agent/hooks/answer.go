package hooks

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Decisions of an answer.
const (
	decisionContinue = "continue"
	decisionModify   = "modify"
	decisionCancel   = "cancel"
)

// Bounds of an answer.
const (
	maxMembers = 16
	maxReason  = 500 // bytes of a cancellation's reason; the rest is cut
	maxDepth   = 128 // nesting levels of an answer; device results have half as many
)

// errJSON is the error for most malformed answers. The parser's own error could quote the answer, which may have
// private data, and errors are logged.
var errJSON = errors.New("must be one JSON object without a name twice")

// answer is a hook's answer.
type answer struct {
	decision string
	reason   string        // with cancel
	args     registry.JSON // with modify, before a call
	output   string        // with modify, after a call
	json     registry.JSON
	err      string
	parts    []keptPart      // with modify, after a call: parts to keep, and their new description
	selected []registry.Part // the result's parts, set by selectParts
}

// keptPart is a part of the question that the answer keeps.
type keptPart struct {
	index int

	// described means that the answer has more than the part's index. Then name and uri replace the part's, and are
	// removed if the answer omits them.
	described bool
	name, uri string
	mimeType  string            // empty: unchanged
	typ       registry.PartType // empty: unchanged
}

// parseAnswer parses an answer. Unknown and missing members are errors.
func parseAnswer(text []byte, phase string) (answer, error) {
	var a answer
	if strictjson.Depth(text) > maxDepth {
		return a, fmt.Errorf("nests deeper than %d levels", maxDepth)
	}
	members, err := membersOf(text, "decision", "reason", "args", "result")
	if err != nil {
		return a, err
	}
	changed := map[string]string{phaseBefore: "args", phaseAfter: "result"}[phase]
	seen := make(map[string]bool)
	for _, m := range members {
		name := string(m.Name)
		seen[name] = true
		switch name {
		case "decision":
			a.decision, err = textOf(m)
		case "reason":
			a.reason, err = textOf(m)
		case changed:
			err = a.readChanged(m)
		default:
			err = fmt.Errorf("%s is for the other phase", name)
		}
		if err != nil {
			return a, err
		}
	}
	switch {
	case !slices.Contains([]string{decisionContinue, decisionModify, decisionCancel}, a.decision):
		return a, fmt.Errorf("decision must be continue, modify or cancel")
	case seen[changed] != (a.decision == decisionModify):
		return a, fmt.Errorf("%s must be there with modify, and with nothing else", changed)
	case seen["reason"] && a.decision != decisionCancel:
		return a, fmt.Errorf("reason must be there with cancel only")
	}
	a.reason = registry.TruncateText(legible.Line(a.reason), maxReason)
	return a, nil
}

// readChanged reads the changed arguments or result.
func (a *answer) readChanged(m strictjson.Member) error {
	if string(m.Name) == "args" {
		if a.args = m.Checked(); !a.args.IsObject() || strictjson.Depth(m.Value) > agent.MaxArgsDepth {
			return fmt.Errorf("args must be an object of at most %d levels", agent.MaxArgsDepth)
		}
		return nil
	}
	members, err := membersOf(m.Value, "success", "output", "structured", "error", "parts")
	if err != nil {
		return err
	}
	output := false
	for _, m := range members {
		switch string(m.Name) {
		case "success": // a hook may echo it; the tool's success stays unchanged
			if s := string(m.Value); s != "true" && s != "false" {
				err = fmt.Errorf("success must be true or false")
			}
		case "output":
			output = true
			a.output, err = textOf(m)
		case "structured":
			if a.json = m.Checked(); a.json.IsString() || a.json.String() == "null" {
				err = fmt.Errorf("structured must not be a string or null; text belongs in output")
			}
		case "error":
			a.err, err = textOf(m)
		case "parts":
			a.parts, err = partsOf(m)
		}
		if err != nil {
			return err
		}
	}
	if !output && !a.json.IsZero() {
		a.output = a.json.String()
	}
	return nil
}

// membersOf returns the members of an object. Members with other names are an error.
func membersOf(text []byte, names ...string) ([]strictjson.Member, error) {
	members, err := strictjson.Members(nil, text, maxMembers)
	if err != nil {
		return nil, errJSON
	}
	for _, m := range members {
		if !slices.Contains(names, string(m.Name)) {
			return nil, fmt.Errorf("an unknown field; there may be: %s", strings.Join(names, ", "))
		}
	}
	return members, nil
}

// textOf returns a member that must be a string.
func textOf(m strictjson.Member) (string, error) {
	if m.Value[0] != '"' {
		return "", fmt.Errorf("%s must be a string", m.Name)
	}
	return strictjson.Text(m.Value), nil
}

// partsOf returns the parts to keep.
func partsOf(m strictjson.Member) ([]keptPart, error) {
	items, err := strictjson.Items(m.Value)
	if err != nil || len(items) > registry.MaxParts {
		return nil, fmt.Errorf("parts must be an array of at most %d parts", registry.MaxParts)
	}
	var kept []keptPart
	for _, item := range items {
		p, err := keptPartOf(item)
		if err != nil {
			return nil, fmt.Errorf("parts: %w", err)
		}
		if slices.ContainsFunc(kept, func(k keptPart) bool { return k.index == p.index }) {
			return nil, errors.New("parts: each index must be there once")
		}
		kept = append(kept, p)
	}
	return kept, nil
}

// keptPartOf reads one part to keep. Its size stays unchanged, whatever the answer says.
func keptPartOf(item []byte) (keptPart, error) {
	p := keptPart{index: -1}
	members, err := membersOf(item, "index", "type", "mime_type", "name", "uri", "size")
	if err != nil {
		return p, err
	}
	p.described = len(members) > 1
	for _, m := range members {
		text := ""
		if name := string(m.Name); name != "index" && name != "size" {
			if text, err = textOf(m); err != nil {
				return p, err
			}
		}
		switch string(m.Name) {
		case "index":
			if p.index, err = strconv.Atoi(string(m.Value)); err != nil || p.index < 0 {
				return p, errors.New("each index must be one of the question")
			}
		case "type":
			p.typ = registry.PartType(text)
		case "mime_type":
			p.mimeType = text
		case "name":
			p.name = text
		case "uri":
			p.uri = text
		}
	}
	if p.index < 0 {
		return p, errors.New("each must have an index")
	}
	return p, nil
}

// selectParts sets selected to the parts of the result that the answer keeps, with their new descriptions. An unknown
// index is ignored. A part with an invalid description is an error.
func (a *answer) selectParts(parts []registry.Part) error {
	for _, k := range a.parts {
		if k.index >= len(parts) {
			continue
		}
		p := parts[k.index]
		if k.described {
			p = k.describe(p)
		}
		if field, must := p.Check(); k.described && field != "" {
			return fmt.Errorf("parts: %s %s", field, must)
		}
		a.selected = append(a.selected, p)
	}
	return nil
}

// describe returns a part with the answer's description. A linked file is served with the device's name and type, so a
// changed part loses its link.
func (k *keptPart) describe(p registry.Part) registry.Part {
	was := p
	p.Name, p.URI = k.name, k.uri
	if k.mimeType != "" {
		p.MIMEType = k.mimeType
	}
	switch {
	case k.typ != "":
		p.Type = k.typ
	case p.Type != registry.PartTypeOf(p.MIMEType):
		p.Type = registry.PartFile
	}
	if p.Name != was.Name || p.URI != was.URI || p.MIMEType != was.MIMEType {
		p.URL = ""
	}
	return p
}
