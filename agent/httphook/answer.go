package httphook

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	maxReason  = 500 // bytes kept of the reason of a cancellation
	maxDepth   = 128 // levels of an answer; results of devices have half as many
)

// errJSON is why most broken answers are refused. What the parser says may quote the answer, which may have in it what
// nobody is to read; errors are logged.
var errJSON = errors.New("must be one JSON object without a name twice")

// answer is what a hook says.
type answer struct {
	decision string
	reason   string        // with cancel
	args     registry.JSON // with modify, before a call
	output   string        // with modify, after a call
	json     registry.JSON
	err      string
	parts    []int // with modify, after a call: which parts stay
}

// parseAnswer reads an answer. What does not belong in it, or is missing, is an error.
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

// readChanged reads the arguments or the result to go on with.
func (a *answer) readChanged(m strictjson.Member) error {
	if string(m.Name) == "args" {
		if a.args = m.Checked(); !a.args.IsObject() {
			return fmt.Errorf("args must be an object")
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
		case "success": // a hook may send back what it got; that the tool ran, and how, stays as it was
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

// membersOf returns the members of an object that has none but the named ones.
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

// partsOf returns the indexes of the parts that stay. Whatever else the answer says of them is what the question said.
func partsOf(m strictjson.Member) ([]int, error) {
	items, err := strictjson.Items(m.Value)
	if err != nil || len(items) > registry.MaxParts {
		return nil, fmt.Errorf("parts must be an array of at most %d parts", registry.MaxParts)
	}
	var kept []int
	for _, item := range items {
		members, err := membersOf(item, "index", "type", "mime_type", "name", "uri", "size")
		if err != nil {
			return nil, fmt.Errorf("parts: %w", err)
		}
		at := slices.IndexFunc(members, func(m strictjson.Member) bool { return string(m.Name) == "index" })
		if at < 0 {
			return nil, errors.New("parts: each must have an index")
		}
		index, err := strconv.Atoi(string(members[at].Value))
		if err != nil || index < 0 || slices.Contains(kept, index) {
			return nil, errors.New("parts: each index must be one of the question, and there once")
		}
		kept = append(kept, index)
	}
	return kept, nil
}
