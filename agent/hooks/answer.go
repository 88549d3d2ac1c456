package hooks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Decisions of an answer.
const (
	decisionContinue = "continue"
	decisionModify   = "modify"
	decisionCancel   = "cancel"
)

// Bounds of an answer.
const (
	maxReason = 500 // bytes of a cancellation's reason; the rest is cut
	maxDepth  = 128 // nesting levels of an answer; device results have half as many
)

// answer is a hook's answer.
type answer struct {
	Decision string        `json:"decision"`
	Reason   *string       `json:"reason"` // with cancel
	Args     registry.JSON `json:"args"`   // with modify, before a call
	Result   *changed      `json:"result"` // with modify, after a call

	reason   string
	selected []registry.Part // the result's parts, set by selectParts
}

// changed is the result in an answer. Success may be echoed; the tool's success stays unchanged.
type changed struct {
	Success    *bool         `json:"success"`
	Output     *string       `json:"output"` // default: Structured as text
	Structured registry.JSON `json:"structured"`
	Error      string        `json:"error"`
	Described  registry.JSON `json:"parts"` // not nested deeper, nor with more values, than parts have

	parts []keptPart // set by readParts
}

// keptPart is a part of the question that the answer keeps. If it has more than the index, Name and URI replace the
// part's, and are removed if the answer omits them. Size is ignored.
type keptPart struct {
	Index    *int     `json:"index"`
	Type     *string  `json:"type"`
	MIMEType *string  `json:"mime_type"`
	Name     *string  `json:"name"`
	URI      *string  `json:"uri"`
	Size     *ignored `json:"size"`
}

// ignored is a member whose value does not matter, and may be null.
type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

// parseAnswer parses an answer. Unknown and missing members and null are errors.
func parseAnswer(text []byte, phase string) (answer, error) {
	var a answer
	if strictjson.Depth(text) > maxDepth {
		return a, fmt.Errorf("nests deeper than %d levels", maxDepth)
	}
	if err := decodeStrictly(text, &a); err != nil {
		return a, err
	}
	args, result := !a.Args.IsZero(), a.Result != nil
	switch {
	case !slices.Contains([]string{decisionContinue, decisionModify, decisionCancel}, a.Decision):
		return a, errors.New("decision must be continue, modify or cancel")
	case args != (a.Decision == decisionModify && phase == phaseBefore),
		result != (a.Decision == decisionModify && phase == phaseAfter):
		return a, errors.New("modify requires args, or result after the call; other decisions must not have them")
	case a.Reason != nil && a.Decision != decisionCancel:
		return a, errors.New("reason is allowed only with cancel")
	case args && (!a.Args.IsObject() || strictjson.Depth(a.Args.Raw()) > agent.MaxArgsDepth):
		return a, fmt.Errorf("args must be an object of at most %d levels", agent.MaxArgsDepth)
	case a.Reason != nil:
		a.reason = registry.TruncateText(textsafe.Line(*a.Reason), maxReason)
	case result:
		return a, a.Result.check()
	}
	return a, nil
}

// decodeStrictly decodes JSON, in which unknown members and null are errors.
func decodeStrictly(text []byte, into any) error {
	noNull := jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
		if _, any := v.(**ignored); d.PeekKind() == 'n' && !any {
			return errors.New("null")
		}
		return errors.ErrUnsupported // read it as usual
	})
	err := jsonv2.Unmarshal(text, into, jsonv2.RejectUnknownMembers(true), jsonv2.WithUnmarshalers(noNull))
	if err != nil {
		return withoutText(err)
	}
	return nil
}

// withoutText returns an error of the parser without text of the answer, which may be private: errors are logged.
func withoutText(err error) error {
	if wrong, ok := errors.AsType[*jsonv2.SemanticError](err); ok && !errors.Is(err, jsonv2.ErrUnknownName) {
		return fmt.Errorf("%q has the wrong type", wrong.JSONPointer) // it has known names only
	}
	return errors.New("must be one JSON object without duplicate or unknown names")
}

// check returns an error if the result has a text as Structured, or parts that are not each one of the question.
func (c *changed) check() error {
	if c.Structured.IsString() {
		return errors.New("structured must not be a string; text belongs in output")
	}
	if err := c.readParts(); err != nil {
		return fmt.Errorf("result.parts: %w", err)
	}
	seen := make(map[int]bool)
	for _, p := range c.parts {
		if p.Index == nil || *p.Index < 0 || seen[*p.Index] {
			return errors.New("result.parts: each must have a unique index from the request")
		}
		seen[*p.Index] = true
	}
	return nil
}

// partValues is how many JSON values a part may have, with itself and its array: it has six members.
const partValues = 16

// readParts reads the parts. It counts before it decodes: a decoded part takes thirty times the memory of its text.
func (c *changed) readParts() error {
	tooMany := fmt.Errorf("must be an array of at most %d parts", registry.MaxParts)
	switch text := c.Described.Raw(); {
	case c.Described.IsZero():
		return nil
	case strictjson.Values(text) > registry.MaxParts*partValues:
		return tooMany
	default:
		if err := decodeStrictly(text, &c.parts); err != nil {
			return err
		}
	}
	if len(c.parts) > registry.MaxParts {
		return tooMany
	}
	return nil
}

// result returns the result of a call with the changes of the answer.
func (a *answer) result(was registry.Result) registry.Result {
	c := a.Result
	res := registry.Result{
		Success: was.Success, Output: given(c.Output), Structured: c.Structured, Error: c.Error,
		Notice: was.Notice, Parts: a.selected,
	}
	if c.Output == nil {
		res.Output = c.Structured.String()
	}
	return res
}

// selectParts sets selected to the parts that the answer keeps, with their new descriptions, but no unknown indexes.
func (a *answer) selectParts(parts []registry.Part) error {
	if a.Result == nil {
		return nil
	}
	for _, k := range a.Result.parts {
		if *k.Index >= len(parts) {
			continue
		}
		p := parts[*k.Index]
		if k != (keptPart{Index: k.Index}) {
			p = k.describe(p)
			if field, must := p.Check(); field != "" {
				return fmt.Errorf("parts: %s %s", field, must)
			}
		}
		a.selected = append(a.selected, p)
	}
	return nil
}

// describe returns a part with the answer's description, and if that changed, without its link.
func (k *keptPart) describe(p registry.Part) registry.Part {
	was := p
	p.Name, p.URI = given(k.Name), given(k.URI)
	p.MIMEType = cmp.Or(given(k.MIMEType), p.MIMEType)
	switch {
	case given(k.Type) != "":
		p.Type = registry.PartType(*k.Type)
	case p.Type != registry.PartTypeOf(p.MIMEType):
		p.Type = registry.PartFile
	}
	if p.Name != was.Name || p.URI != was.URI || p.MIMEType != was.MIMEType {
		p.URL = ""
	}
	return p
}

// given returns a text, or "".
func given(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
