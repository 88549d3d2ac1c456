package farhand_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry/textsafe"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const poisonedGolden = "testdata/poisoned.golden"

// poisons are what a definition may hide, as JSON writes it.
var poisons = [][2]string{
	{"bidi", `\u202eevil\u2066`}, {"zero-width", `e\u200bvi\u2060l`}, {"tags", `evil\udb40\udc41\udb40\udc42`},
	{"terminal", `\u001b[2Jevil\u009b1m`}, {"control", `e\u0000vil\r`},
}

// places are where in a definition it may stand: X is the poison.
var places = [][2]string{
	{"name", `{"name":"fine_X","description":"d"}`},
	{"description", `{"name":"N","description":"Says X."}`},
	{"title", `{"name":"N","description":"d","parameters":{"title":"X"}}`},
	{"schema description", `{"name":"N","description":"d","parameters":{"type":"object","description":"X"}}`},
	{"comment", `{"name":"N","description":"d","parameters":{"type":"object","$comment":"X"}}`},
	{"nested comment", `{"name":"N","description":"d","parameters":{"properties":{"a":{"items":{"$comment":"X"}}}}}`},
	{"parameter description", `{"name":"N","description":"d","parameters":{"properties":{"a":{"description":"X"}}}}`},
	{"parameter name", `{"name":"N","description":"d","parameters":{"properties":{"aX":{"type":"string"}}}}`},
	{"nested parameter name",
		`{"name":"N","description":"d","parameters":{"properties":{"a":{"properties":{"X":{}}}}}}`},
	{"required name", `{"name":"N","description":"d","parameters":{"required":["aX"]}}`},
	{"pattern of names", `{"name":"N","description":"d","parameters":{"patternProperties":{"^X":{}}}}`},
	{"enum", `{"name":"N","description":"d","parameters":{"properties":{"a":{"enum":["b","X"]}}}}`},
	{"const", `{"name":"N","description":"d","parameters":{"properties":{"a":{"const":"X"}}}}`},
	{"default", `{"name":"N","description":"d","parameters":{"properties":{"a":{"default":"X"}}}}`},
	{"key of a default", `{"name":"N","description":"d","parameters":{"properties":{"a":{"default":{"b":{"X":1}}}}}}`},
	{"examples", `{"name":"N","description":"d","parameters":{"properties":{"a":{"examples":["b",["X"]]}}}}`},
	{"pattern", `{"name":"N","description":"d","parameters":{"properties":{"a":{"pattern":"X"}}}}`},
	{"definition", `{"name":"N","description":"d","parameters":{"$defs":{"X":{"type":"string"}}}}`},
	{"unknown keyword", `{"name":"N","description":"d","parameters":{"x-note":"X"}}`},
	{"name of a keyword", `{"name":"N","description":"d","parameters":{"X":{"type":"string"}}}`},
	{"hint", `{"name":"N","description":"d","annotations":{"title":"X","readOnlyHint":true,"openWorldHint":true}}`},
}

// imitated are names that a reader takes for those of the gateway's own tools, enabled or not.
var imitated = []string{
	"time", "TIME", "Time", "tirne", "tіme", "ｔｉｍｅ", "𝐭𝐢𝐦𝐞", "ТІМЕ", `ti\u200bme`, `\u202etime`, "sessions", "Sessions",
	"ѕеѕѕіоnѕ", "SESSlONS", `sess\u00adions`,
}

// poisoned returns the definitions, in JSON, by what they are called in the golden file.
func poisoned() (names []string, definitions []string) {
	add := func(name, definition string) {
		names = append(names, name)
		definitions = append(definitions, strings.ReplaceAll(definition, `"N"`, fmt.Sprintf(`"tool_%d"`, len(names))))
	}
	for _, place := range places {
		for _, poison := range poisons {
			add(place[0]+", "+poison[0], strings.ReplaceAll(place[1], "X", poison[1]))
		}
	}
	for _, name := range imitated {
		add("the name "+name, `{"name":"`+name+`","description":"d"}`)
	}
	add("look-alike parameters", `{"name":"N","description":"d","parameters":{"properties":{"path":{},"pаth":{}}}}`)
	return names, definitions
}

// toolModel remembers the tools it was shown.
type toolModel struct {
	askedModel
	mu    sync.Mutex
	tools []provider.Tool
}

func (m *toolModel) Generate(ctx context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer,
	error) {
	m.mu.Lock()
	m.tools = r.Tools
	m.mu.Unlock()
	return m.askedModel.Generate(ctx, r, emit)
}

// TestPoisonedDefinitions registers definitions that hide something, at the real socket, and reads what is made of them
// wherever tools are shown. The golden file has what a model sees.
func TestPoisonedDefinitions(t *testing.T) {
	model := &toolModel{}
	url := start(t, farhand.Config{AgentConfig: farhand.AgentConfig{Builtins: []string{"sessions"}}},
		farhand.WithModel(model))
	conn := connect(t, url, "phone", "")
	names, definitions := poisoned()
	if len(names) < 100 {
		t.Fatalf("%d definitions", len(names))
	}
	rejected := make([]string, len(names))
	for i, definition := range definitions {
		frame := `{"type":"register_tools","tools":[` + definition + `]}`
		if err := conn.WriteMessage(1, []byte(frame)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, answer, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var said struct {
			Type     string
			Rejected []struct{ Reason string }
		}
		if err := json.Unmarshal(answer, &said); err != nil || said.Type != "tools_registered" {
			t.Fatalf("%s: %s %v", names[i], answer, err)
		}
		if len(said.Rejected) > 0 {
			rejected[i] = said.Rejected[0].Reason // beside the name, which is echoed to whoever sent it
		}
		if textsafe.Clean(rejected[i]) != rejected[i] {
			t.Errorf("%s: the reason shows %+q", names[i], rejected[i])
		}
	}
	if status, text := send(t, url+"/api/sessions/phone/messages", `{"content":"hi"}`, ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for _, path := range []string{"/api/tools?limit=500", "/api/tools?format=openai", "/api/tools?format=anthropic",
		"/api/tools?format=mcp", "/api/tools?view=grouped", "/api/sessions/phone"} {
		status, text := send(t, url+path, "", "")
		if status != http.StatusOK || !strings.Contains(text, "tool_6") {
			t.Errorf("%s: %d %.300s", path, status, text)
		}
		checkLegible(t, path, []byte(text))
	}
	if err := conn.WriteMessage(1, []byte(`{"type":"get_registered_tools"}`)); err != nil {
		t.Fatal(err)
	}
	for { // behind the frames of the turn
		_, answer, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		checkLegible(t, "the socket", answer)
		if strings.Contains(string(answer), `"registered_tools"`) {
			break
		}
	}
	compareGolden(t, view(t, names, rejected, model.tools))
}

// view says for each definition what a model sees of it, or why it was rejected.
func view(t *testing.T, names, rejected []string, tools []provider.Tool) string {
	shown := make(map[string]provider.Tool)
	for _, tool := range tools {
		shown[tool.Name] = tool
		checkLegible(t, tool.Name, tool.Parameters)
		if textsafe.Clean(tool.Description) != tool.Description {
			t.Errorf("%s: %+q", tool.Name, tool.Description)
		}
	}
	var b strings.Builder
	for i, name := range names {
		if rejected[i] != "" {
			fmt.Fprintf(&b, "%s\n    rejected: %s\n", name, rejected[i])
			continue
		}
		tool, ok := shown[fmt.Sprintf("tool_%d", i+1)]
		if !ok {
			t.Errorf("%s: neither rejected nor shown", name)
		}
		fmt.Fprintf(&b, "%s\n    %q %s\n", name, tool.Description, tool.Parameters)
	}
	return b.String()
}

// checkLegible fails if a string of a JSON text hides something from its reader.
func checkLegible(t *testing.T, where string, text []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Errorf("%s: %v: %.200s", where, err, text)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if textsafe.Clean(v) != v {
				t.Errorf("%s shows %+.200q", where, v)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for key, item := range v {
				walk(key)
				walk(item)
			}
		}
	}
	walk(v)
}

func compareGolden(t *testing.T, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(poisonedGolden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(poisonedGolden)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	if !slices.Equal(gotLines, wantLines) {
		for i := range min(len(gotLines), len(wantLines)) {
			if gotLines[i] != wantLines[i] {
				t.Fatalf("line %d of %s:\ngot  %s\nwant %s", i+1, poisonedGolden, gotLines[i], wantLines[i])
			}
		}
		t.Fatalf("%d lines, want %d", len(gotLines), len(wantLines))
	}
}
