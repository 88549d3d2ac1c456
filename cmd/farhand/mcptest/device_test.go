package mcptest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// connect connects a device through a URL and waits until its tools are registered. The device disconnects when the
// test ends or the returned function is called.
func connect(t testing.TB, url, token, session string, options ...client.Option) (c *client.Client, disconnect func()) {
	t.Helper()
	c, err := client.New("ws"+strings.TrimPrefix(url, "http")+"/ws/chat",
		append([]client.Option{client.WithToken(token), client.WithSession(session)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	disconnect = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(disconnect)
	select {
	case <-c.Ready():
	case <-time.After(waitLimit):
		t.Fatalf("device %s did not register", session)
	}
	return c, disconnect
}

// stages are what a tool reports before it answers.
func stages(ctx context.Context, call client.Call) error {
	for _, percent := range []float64{0, 50, 100} {
		call.Progress(percent, 100, "")
		select {
		case <-time.After(50 * time.Millisecond): // what the suite asks for
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// suiteSchema is the schema of the suite's tool json_schema_2020_12_tool.
const suiteSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {"address": {"$anchor": "addressDef", "type": "object",
		"properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {
		"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"}, "email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`

// What the suite's tools return: one pixel, one sample, one sentence.
const (
	suiteImage = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	suiteSound = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
	suiteText  = "This is an embedded resource content."
)

const headerSchema = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
	"level":{"type":"integer"}}}`

// decode returns the bytes of a base64 text.
func decode(t testing.TB, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// connectSuiteDevice connects the device that has the tools the suite asks a server for. Tools of Farhand are those of
// devices, so this is a device as any other.
func connectSuiteDevice(t testing.TB, url string) {
	t.Helper()
	image := client.Part{Type: client.PartImage, MIMEType: "image/png", Data: decode(t, suiteImage)}
	sound := client.Part{Type: client.PartAudio, MIMEType: "audio/wav", Data: decode(t, suiteSound)}
	text := client.Part{Type: client.PartFile, MIMEType: "text/plain", Name: "note.txt", Data: []byte(suiteText)}
	var options []client.Option
	var device *client.Client
	add := func(name, schema, level string, h client.Handler) {
		options = append(options, client.WithTool(client.Tool{Name: name, Description: "of the suite",
			Parameters: json.RawMessage(schema), SecurityLevel: level}, h))
	}
	answer := func(v any) client.Handler {
		return func(context.Context, client.Call) (any, error) { return v, nil }
	}
	add("test_simple_text", "", "", answer("This is a simple text response for testing."))
	add("test_image_content", "", "", answer(client.Result{Parts: []client.Part{image}}))
	add("test_audio_content", "", "", answer(client.Result{Parts: []client.Part{sound}}))
	add("test_embedded_resource", "", "", answer(client.Result{Parts: []client.Part{text}}))
	add("test_multiple_content_types", "", "", answer(client.Result{Output: "Multiple content types test:",
		Parts: []client.Part{image, text}}))
	add("test_error_handling", "", "", func(context.Context, client.Call) (any, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	})
	slow := func(ctx context.Context, call client.Call) (any, error) { return "done", stages(ctx, call) }
	add("test_tool_with_progress", "", "", slow)
	add("test_streaming_elicitation", "", "", slow)
	add("test_logging_tool", "", "", answer("logged nothing"))
	add("json_schema_2020_12_tool", suiteSchema, "", answer("valid"))
	add("test_x_mcp_header", headerSchema, "", answer("valid"))
	for _, name := range []string{"elicitation", "request_state", "tampered_state"} {
		add("test_input_required_result_"+name, "", "user_confirm", answer("state-ok"))
	}
	var changes sync.Mutex
	there := false
	add("test_trigger_tool_change", "", "", func(context.Context, client.Call) (any, error) {
		changes.Lock()
		defer changes.Unlock()
		if there = !there; !there {
			return "removed", device.RemoveTool("test_tool_of_change")
		}
		return "added", device.AddTool(client.Tool{Name: "test_tool_of_change", Description: "comes and goes"},
			answer("here"))
	})
	device, _ = connect(t, url, rootToken, "suite", append(options, taskTools()...)...)
}

// taskTools returns the tools that the scenarios of tasks ask for. They may take longer than a call waits by default,
// so that a client that knows tasks is given one.
func taskTools() (options []client.Option) {
	const long = 2 * time.Minute
	add := func(name, level string, timeout time.Duration, h client.Handler) {
		options = append(options, client.WithTool(client.Tool{Name: name, Description: "of the suite", Timeout: timeout,
			SecurityLevel: level}, h))
	}
	add("greet", "", 0, func(_ context.Context, call client.Call) (any, error) {
		var args struct{ Name string }
		err := call.Bind(&args)
		return "Hello, " + args.Name + "!", err
	})
	add("slow_compute", "", long, func(ctx context.Context, call client.Call) (any, error) {
		var args struct{ Seconds float64 }
		if err := call.Bind(&args); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(args.Seconds * float64(time.Second))):
			return "computed", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	add("failing_job", "", long, func(context.Context, client.Call) (any, error) {
		return nil, errors.New("this job fails")
	})
	add("confirm_delete", "user_confirm", long, func(context.Context, client.Call) (any, error) {
		return "deleted", nil
	})
	return options
}
