package mcptest

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/ws/client"
)

// contentScenarios are those that say something about what tools return.
var contentScenarios = []string{
	"tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
	"tools-call-mixed-content", "tools-call-error", "tools-call-with-progress",
}

// TestConformanceBehindMCP: what a real MCP server returns through a device reaches MCP clients as the suite wants it,
// in both revisions: mapped to the protocol of devices and back, it has lost nothing.
func TestConformanceBehindMCP(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "FARHAND_ALLOWED_HOSTS=localhost")
	connectSuiteServer(t, f.pods[1].url)
	for _, revision := range revisions {
		for _, scenario := range contentScenarios {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			dir := t.TempDir()
			out, _ := exec.CommandContext(ctx, node(t), bin(t, "conformance"), "server", "--url",
				f.suite+"/mcp/sessions/suite", "--scenario", scenario, "--spec-version", revision,
				"-o", dir).CombinedOutput()
			cancel()
			rows := results(t, revision, dir, out)
			if len(rows) != 1 || len(rows[0].failed) > 0 || len(rows[0].passed) == 0 {
				t.Errorf("%s %s: %+v\n%s", revision, scenario, rows, out)
			}
		}
	}
}

// connectSuiteServer connects an MCP server, made with the SDK of the MCP project, that has the tools the scenarios of
// contents ask for.
func connectSuiteServer(t *testing.T, url string) {
	t.Helper()
	image := &mcp.ImageContent{MIMEType: "image/png", Data: decode(t, suiteImage)}
	resource := func(uri, mime, text string) mcp.Content {
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: mime, Text: text}}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "suite", Version: "1"}, nil)
	add := func(name string, h func(context.Context, *mcp.CallToolRequest) ([]mcp.Content, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "of the suite"},
			func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
				content, err := h(ctx, r)
				return &mcp.CallToolResult{Content: content}, nil, err
			})
	}
	answer := func(name string, content ...mcp.Content) {
		add(name, func(context.Context, *mcp.CallToolRequest) ([]mcp.Content, error) { return content, nil })
	}
	answer("test_simple_text", &mcp.TextContent{Text: "This is a simple text response for testing."})
	answer("test_image_content", image)
	answer("test_audio_content", &mcp.AudioContent{MIMEType: "audio/wav", Data: decode(t, suiteSound)})
	answer("test_embedded_resource", resource("test://embedded-resource", "text/plain", suiteText))
	answer("test_multiple_content_types", &mcp.TextContent{Text: "Multiple content types test:"}, image,
		resource("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))
	add("test_error_handling", func(context.Context, *mcp.CallToolRequest) ([]mcp.Content, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	})
	add("test_tool_with_progress", func(ctx context.Context, r *mcp.CallToolRequest) ([]mcp.Content, error) {
		for _, percent := range []float64{0, 50, 100} {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: percent, Total: 100}); err != nil {
				return nil, err
			}
			select {
			case <-time.After(50 * time.Millisecond): // what the suite asks for
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return []mcp.Content{&mcp.TextContent{Text: "done"}}, nil
	})
	serveAsDevice(t, url, s)
	eventually(t, "the server's tools are registered", func() bool {
		return strings.Contains(string(request(t, "GET", url+"/api/tools", rootToken, "", 200)),
			"test_tool_with_progress")
	})
}

// serveAsDevice connects a server as `farhand device --mcp` does, until the test ends.
func serveAsDevice(t *testing.T, url string, s *mcp.Server) {
	t.Helper()
	c, err := client.New("ws"+strings.TrimPrefix(url, "http")+"/ws/mcp", client.WithToken(rootToken),
		client.WithSession("suite"))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	t.Cleanup(both.Wait)
	t.Cleanup(cancel)
	both.Go(func() { _ = s.Run(ctx, &mcp.IOTransport{Reader: theirs, Writer: theirs}) })
	both.Go(func() { _ = c.RunMCP(ctx, ours) })
}
