package openclaw_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaFile has the definitions that nodes and gateways exchange, as OpenClaw publishes them.
const schemaFile = "../../ws/node/testdata/schema/gateway-protocol.json"

// The definitions of what a frame carries. What is not named here is checked as a frame only: its schema is not
// published.
var (
	paramsOf = map[string]string{ // of requests
		"connect":                 "ConnectParams",
		"node.invoke.result":      "NodeInvokeResultParams",
		"node.invoke.progress":    "NodeInvokeProgressParams",
		"node.event":              "NodeEventParams",
		"node.pluginTools.update": "NodePluginToolsUpdateParams",
		"node.skills.update":      "NodeSkillsUpdateParams",
		"node.pending.ack":        "NodePendingAckParams",
		"node.pending.drain":      "NodePendingDrainParams",
	}
	payloadOf = map[string]string{ // of events
		"node.invoke.request": "NodeInvokeRequestEvent",
		"node.invoke.input":   "NodeInvokeInputEvent",
		"tick":                "TickEvent",
		"shutdown":            "ShutdownEvent",
	}
	resultOf = map[string]string{ // of answers, by the method of the request
		"connect":            "HelloOk",
		"node.event":         "NodeEventResult",
		"node.pending.drain": "NodePendingDrainResult",
	}
)

// schema is the published schema of OpenClaw's protocol. It is safe for concurrent use.
type schema struct{ definitions map[string]*jsonschema.Schema }

func readSchema(t testing.TB) *schema {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	must(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.UseRegexpEngine(compilePattern)
	must(t, compiler.AddResource("protocol.json", document))
	s := &schema{definitions: map[string]*jsonschema.Schema{}}
	for name := range document.(map[string]any)["definitions"].(map[string]any) {
		s.definitions[name], err = compiler.Compile("protocol.json#/definitions/" + name)
		must(t, err)
	}
	return s
}

// pattern is a regular expression that must match, of which Go knows all but a leading "no --".
type pattern struct {
	*regexp.Regexp
	noDashes bool
}

// MatchString implements jsonschema.Regexp.
func (p pattern) MatchString(s string) bool {
	return p.Regexp.MatchString(s) && !(p.noDashes && strings.Contains(s, "--"))
}

func compilePattern(text string) (jsonschema.Regexp, error) {
	rest, noDashes := strings.CutPrefix(text, "^(?!.*--)")
	if noDashes {
		text = "^" + rest
	}
	compiled, err := regexp.Compile(text)
	return pattern{compiled, noDashes}, err
}

// dialogue checks the frames of one connection, in the order in which they are sent. It is not safe for concurrent use.
type dialogue struct {
	schema *schema
	asked  map[string]string // methods of requests, by id
}

func (s *schema) dialogue() *dialogue { return &dialogue{schema: s, asked: map[string]string{}} }

type envelope struct {
	Type, ID, Method, Event string
	OK                      bool
	Params, Payload         json.RawMessage
}

// check returns what is wrong with a frame and what it carries.
func (d *dialogue) check(text []byte) error {
	name, part, err := d.checkFrame(text)
	if err != nil || name == "" {
		return err
	}
	return d.schema.validate(name, part)
}

// checkFrame returns what is wrong with a frame, and what it carries with the name of its definition, if it has one.
func (d *dialogue) checkFrame(text []byte) (name string, part json.RawMessage, err error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return "", nil, err
	}
	frame := ""
	part = e.Payload
	switch e.Type {
	case "req":
		frame, part, name = "RequestFrame", e.Params, paramsOf[e.Method]
		d.asked[e.ID] = e.Method
	case "res":
		frame = "ResponseFrame"
		if e.OK {
			name = resultOf[d.asked[e.ID]]
		}
		delete(d.asked, e.ID)
	case "event":
		frame, name = "EventFrame", payloadOf[e.Event]
	default:
		return "", nil, fmt.Errorf("a frame of the type %q", e.Type)
	}
	return name, part, d.schema.validate(frame, text)
}

func (s *schema) validate(name string, text []byte) error {
	definition := s.definitions[name]
	if definition == nil {
		return fmt.Errorf("the schema has no %s", name)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := definition.Validate(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
