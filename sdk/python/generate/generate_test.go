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
		source + "_sync_client.py": syncModule(read(t, source+"_async_client.py")),
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

// syncModule returns the synchronous client, which is the asynchronous one without await.
func syncModule(async string) string {
	return "# Generated from _async_client.py by `make docs`.\n" + strings.NewReplacer(
		"AsyncFarhand", "Farhand", "AsyncCall", "Call", "AsyncConversation", "Conversation", "AsyncApprovals", "Approvals",
		"AsyncStream", "Stream", "AsyncDriver", "Driver", "httpx.AsyncClient", "httpx.Client",
		"_async_driver", "_sync_driver", "async def ", "def ", "async for ", "for ", "async with ", "with ", "await ", "",
		"__aenter__", "__enter__", "__aexit__", "__exit__", "aclosing", "closing", "asynchronous", "synchronous",
		"an asyncio program", "a program with threads",
	).Replace(async)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
