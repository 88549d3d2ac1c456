package commands

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// param is a parameter of a tool, and of its command.
type param struct {
	name     string // here
	theirs   string // at the node; empty: name in camel case
	schema   string // its JSON Schema without braces and description
	about    string // for a model
	required bool
	absent   string // JSON that the node gets if the argument is absent; empty: nothing
	not      platform
	convert  func(value json.RawMessage) (json.RawMessage, error) // nil: unchanged
}

// Limits of texts, in characters.
const (
	shortText = 4000
	longText  = 4 << 20 // the gateway's own limits of arguments are lower
)

func text(name, about string) param {
	return param{name: name, schema: `"type":"string","maxLength":` + strconv.Itoa(shortText), about: about}
}

func texts(name, about string) param {
	return param{name: name, about: about,
		schema: `"type":"array","items":{"type":"string","maxLength":256},"minItems":1,"maxItems":64`}
}

func object(name, about string) param {
	return param{name: name, schema: `"type":"object"`, about: about}
}
func flag(name, about string) param {
	return param{name: name, schema: `"type":"boolean"`, about: about}
}

// count is a whole number from 1 to most.
func count(name string, most int64, about string) param {
	return param{name: name, about: about,
		schema: `"type":"integer","minimum":1,"maximum":` + strconv.FormatInt(most, 10)}
}

// index is a whole number from 0.
func index(name, about string) param {
	return param{name: name, schema: `"type":"integer","minimum":0`, about: about}
}

func number(name, about string, least, most int) param {
	return param{name: name, about: about,
		schema: `"type":"number","minimum":` + strconv.Itoa(least) + `,"maximum":` + strconv.Itoa(most)}
}

func choice(name, about string, values ...string) param {
	return param{name: name, schema: `"type":"string","enum":["` + strings.Join(values, `","`) + `"]`, about: about}
}

// moment is a time, which nodes call startISO and the like.
func moment(name, about string) param {
	p := text(name, strings.TrimSuffix("such as 2026-01-31T08:00:00Z; "+about, "; "))
	p.theirs, p.schema = name+"ISO", `"type":"string","maxLength":40`
	return p
}

// quality is a percentage here, and from 0 to 1 at the node.
func quality() param {
	return param{name: "quality", schema: `"type":"integer","minimum":1,"maximum":100`, convert: percent}
}

func percent(value json.RawMessage) (json.RawMessage, error) {
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidArguments, "quality: must be a number from 1 to 100")
	}
	return strconv.AppendFloat(nil, n/100, 'g', -1, 64), nil
}

// duration is the length of a recording, as the tools nodes and camera_clip have it.
func duration(about string) param {
	return param{name: "duration_ms", schema: `"type":"integer","minimum":1000,"maximum":120000`, about: about}
}

func (p param) needed() param { p.required = true; return p }
func (p param) long() param {
	p.schema = `"type":"string","maxLength":` + strconv.Itoa(longText)
	return p
}
func (p param) always(value string) param { p.absent = value; return p }
func (p param) notOn(n platform) param    { p.not = n; return p }

// key returns the parameter's name at the node.
func (p param) key() string {
	if p.theirs != "" {
		return p.theirs
	}
	words := strings.Split(p.name, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// parameters returns the JSON Schema of a command's arguments: a flat object, because some models take no other.
func (c *command) parameters() json.RawMessage {
	b := []byte(`{"type":"object","properties":{`)
	var required []byte
	for i, p := range c.params {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strictjson.AppendString(b, p.name), `:{`...)
		b = append(b, p.schema...)
		if p.about != "" {
			b = strictjson.AppendString(append(b, `,"description":`...), p.about)
		}
		b = append(b, '}')
		if p.required {
			if required != nil {
				required = append(required, ',')
			}
			required = strictjson.AppendString(required, p.name)
		}
	}
	b = append(b, '}')
	if required != nil {
		b = append(append(append(b, `,"required":[`...), required...), ']')
	}
	if !c.open {
		b = append(b, `,"additionalProperties":false`...)
	}
	return append(b, '}')
}

// arguments are the arguments of a call by name. null counts as absent.
type arguments map[string]json.RawMessage

// maxArguments is how many arguments of a call are read. Schemas of known commands allow fewer.
const maxArguments = 1000

func readArguments(args registry.JSON) (arguments, error) {
	if args.IsZero() {
		return arguments{}, nil
	}
	members, err := strictjson.Members(nil, args.Raw(), maxArguments)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidArguments, "The arguments must be a JSON object.").
			With(registry.DispatchedNo)
	}
	a := make(arguments, len(members))
	for _, m := range members {
		if string(m.Value) != "null" {
			a[string(m.Name)] = m.Value
		}
	}
	return a, nil
}

// text returns a string argument, or "" if it is absent or no string.
func (a arguments) text(name string) string {
	if v := a[name]; len(v) > 0 && v[0] == '"' {
		return strictjson.Text(v)
	}
	return ""
}

// number returns a number, or zero if it is absent or none.
func (a arguments) number(name string) float64 {
	n, _ := strconv.ParseFloat(string(a[name]), 64)
	return n
}

// members returns the members that a node gets for arguments, in the order of the command's parameters.
func (c *command) members(n platform, a arguments) ([]member, error) {
	var out []member
	for _, p := range c.params {
		value, given := a[p.name]
		switch {
		case p.not != 0 && p.not == n:
			continue
		case !given && p.absent == "":
			continue
		case !given:
			value = json.RawMessage(p.absent)
		case p.convert != nil:
			var err error
			if value, err = p.convert(value); err != nil {
				return nil, err
			}
		}
		out = append(out, member{Name: []byte(p.key()), Value: value})
	}
	if !c.open {
		return out, nil
	}
	for _, name := range sortedKeys(a) {
		if !slices.ContainsFunc(c.params, func(p param) bool { return p.name == name }) {
			out = append(out, member{Name: []byte(name), Value: a[name]})
		}
	}
	return out, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type member = strictjson.Member

// with returns members with another one.
func with(members []member, name string, value json.RawMessage) []member {
	return append(members, member{Name: []byte(name), Value: value})
}

// quoted returns a text as JSON.
func quoted(s string) json.RawMessage { return strictjson.AppendString(nil, s) }

// encodeObject returns a JSON object.
func encodeObject(members []member) json.RawMessage {
	b := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strictjson.AppendString(b, string(m.Name)), ':')
		b = append(b, m.Value...)
	}
	return append(b, '}')
}
