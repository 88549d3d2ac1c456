package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// manyTools lists tools of this many bytes each.
func manyTools(n, size int) []agent.ShownTool {
	listed := make([]agent.ShownTool, n)
	for i := range listed {
		name := fmt.Sprintf("tool_%04d", i)
		parameters := json.RawMessage(`{"type":"object"}`)
		listed[i].ModelName, listed[i].Spec = name, registry.ToolSpec{
			Name: name, Description: strings.Repeat("d", size-len(name)-len(parameters)), Parameters: parameters,
		}
	}
	return listed
}

func TestToolsOfARequestAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		own, listed, size int // tools, and bytes of each
		offered, left     int
	}{
		"few":                {0, 126, 100, 126, 0},
		"too many":           {0, 500, 100, 126, 374},
		"with own":           {100, 50, 100, 126, 24},
		"own only":           {130, 5, 100, 130, 5},
		"too long":           {0, 100, 4000, 50, 50}, // half of 100,000 tokens of four bytes
		"too long with own":  {10, 100, 4000, 50, 60},
		"own alone too long": {60, 10, 4000, 60, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			l := &loop{limits: Limits{}.withDefaults(), log: slog.New(slog.NewTextHandler(&log, nil)),
				own: make(map[string]bool)}
			for _, o := range manyTools(tt.own, tt.size) {
				o.ModelName = "own" + o.ModelName[4:] // one byte less, so that the sizes above are not hit exactly
				l.own[o.ModelName] = true
				l.base.Tools = append(l.base.Tools, modelTool(o))
			}
			listed := manyTools(tt.listed, tt.size)
			l.history = []provider.Message{user("go")}
			for range 2 {
				r := l.request(listed)
				if len(r.Tools) != tt.offered {
					t.Fatalf("%d tools offered, want %d", len(r.Tools), tt.offered)
				}
				if tt.offered > tt.own && (r.Tools[tt.own].Name != listed[0].ModelName ||
					r.Tools[tt.offered-1].Name != listed[tt.offered-tt.own-1].ModelName) {
					t.Error("the nearest tools are not offered")
				}
			}
			if lines := strings.Count(log.String(), "\n"); lines != min(tt.left, 1) || tt.left > 0 &&
				!strings.Contains(log.String(), fmt.Sprint("left_out=", tt.left)) {
				t.Errorf("%d left out; the log says %s", tt.left, log.String())
			}
		})
	}
}

// TestToolsDoNotEmptyTheNewestResult has tools that take most of a request.
func TestToolsDoNotEmptyTheNewestResult(t *testing.T) {
	l := &loop{limits: Limits{ContextTokens: 20_000}.withDefaults(), log: slog.New(slog.DiscardHandler),
		own: make(map[string]bool), given: 1}
	for _, o := range manyTools(14, 4000) {
		l.base.Tools = append(l.base.Tools, modelTool(o))
		l.own[o.ModelName] = true
	}
	result := strings.Repeat("r", 6_000)
	for i := range 5 {
		c := tool(fmt.Sprint("c", i), "look", "{}")
		l.history = append(l.history, user(result), assistant("", c), toolMessage(c, result, false, ""))
	}
	sent := l.request(nil).Messages
	if last := sent[len(sent)-1]; last.Role != provider.RoleTool || !strings.Contains(last.Content, result) {
		t.Errorf("the newest result is %.80q", last.Content)
	}
}

// TestMadeUpCallIDsAreShort: OpenAI takes 40 characters.
func TestMadeUpCallIDsAreShort(t *testing.T) {
	calls := storable([]provider.ToolCall{{Name: "a"}, {Name: "b", ID: "x"}, {Name: "c", ID: "x"}})
	if len(calls) != 3 {
		t.Fatalf("%d calls are left of three", len(calls))
	}
	for _, c := range calls {
		if c.ID == "" || len(c.ID) > 40 {
			t.Errorf("id %q", c.ID)
		}
	}
}
