package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/tools"
)

// TestToolsDocumentIsTrue: docs/tools.md shows a call of each tool of the gateway, and each works as it is written
// there, with a page of this machine instead of one of the internet.
func TestToolsDocumentIsTrue(t *testing.T) {
	t.Parallel()
	const document = "../../docs/tools.md"
	shown := matches(t, document, `(?m)^farhand call (\S+)`)
	for _, name := range tools.Names() {
		if !slices.Contains(shown, name) {
			t.Errorf("docs/tools.md has no farhand call %s", name)
		}
	}
	pages := httptest.NewServer(http.HandlerFunc(servePage))
	t.Cleanup(pages.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(pages.URL, "http://"))
	dir, err := os.MkdirTemp("/var/tmp", "farhand-docs") // programs of another user pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	enabled := matches(t, document, `(?m)^export (FARHAND_BUILTIN_TOOLS=\S+)`)
	p := startPod(t, append(enabled, "FARHAND_WORKSPACE_DIR="+dir, "XDG_CACHE_HOME="+dir, "FARHAND_PRIVATE_URLS=true",
		"FARHAND_BROWSER_NO_SANDBOX=true", "FARHAND_BROWSER_PORTS="+port)...)
	environ := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken, "FARHAND_PRIVATE_URLS=true"}
	device := strings.Fields(matches(t, document, `(?m)^farhand (device [^#\n]*)`)[0])
	node := start(t, environ, farhandBinary, device...)
	eventually(t, waitLimit, "the device is there", func() bool {
		return strings.Contains(node.out.String(), "session phone offers")
	})
	environ = append(environ, "PATH="+filepath.Dir(farhandBinary)+":"+os.Getenv("PATH"))
	calls := matches(t, document, `(?m)^(farhand call .*)$`)
	if len(calls) < len(tools.Names()) {
		t.Fatalf("only %d calls: %q", len(calls), calls)
	}
	for _, call := range calls {
		call = strings.ReplaceAll(call, "https://example.com/", pages.URL+"/")
		run := start(t, environ, "sh", "-c", "cd "+t.TempDir()+"; "+call)
		if code := run.exit(t); code != 0 {
			t.Errorf("%s: exit %d\n%s", call, code, run.out)
		}
	}
}
