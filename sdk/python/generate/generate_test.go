// Package generate_test makes the parts of the Python client that are generated, and holds them to their sources.
package generate_test

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files")

const (
	schemasFile = "../../../api/openapi/schemas.json"
	source      = "../src/farhand/"
)

// TestGenerated compares the generated files with what the OpenAPI document and the asynchronous client say now.
func TestGenerated(t *testing.T) {
	for path, want := range map[string]string{
		source + "types.py":        pythonModule(t, read(t, schemasFile)),
		source + "_sync_client.py": syncModule(t, "_async_client.py"),
		source + "_sync_group.py":  syncModule(t, "_async_group.py"),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if read(t, path) != want {
			t.Errorf("%s is not what its source says; run make docs", path)
		}
	}
}

// syncModule returns a module of the synchronous client, which is that of the asynchronous one without await.
func syncModule(t *testing.T, async string) string {
	t.Helper()
	return "# Generated from " + async + " by `make docs`.\n" + strings.NewReplacer(
		"AsyncFarhand", "Farhand", "AsyncCall", "Call", "AsyncGroupCall", "GroupCall",
		"AsyncConversation", "Conversation", "AsyncApprovals", "Approvals",
		"AsyncStream", "Stream", "AsyncDriver", "Driver", "httpx.AsyncClient", "httpx.Client",
		"_async_driver", "_sync_driver", "_async_group", "_sync_group",
		"async def ", "def ", "async for ", "for ", "async with ", "with ", "await ", "", "__aiter__", "__iter__",
		"__aenter__", "__enter__", "__aexit__", "__exit__", "aclosing", "closing", "asynchronous", "synchronous",
		"an asyncio program", "a program with threads",
	).Replace(read(t, source+async))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
