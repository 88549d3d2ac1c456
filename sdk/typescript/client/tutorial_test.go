package client_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/chromiumtest"
	"github.com/farhand/farhand/internal/testkit"
)

// tutorial is docs/tutorial-typescript.md: its files by their names, and its commands, block by block.
type tutorial struct {
	files    map[string]string
	commands []string
	folder   string
	env      []string
}

// readTutorial reads the tutorial, with the addresses of this test in place of its own.
func readTutorial(t *testing.T, gateway, page string) *tutorial {
	t.Helper()
	text, err := os.ReadFile("../../../docs/tutorial-typescript.md")
	must(t, err)
	_, port, err := net.SplitHostPort(page)
	must(t, err)
	replaced := strings.NewReplacer("192.168.1.20:3000", page, "192.168.1.20:8080", gateway, "0.0.0.0:8080", gateway,
		"listen(3000)", "listen("+port+")").Replace(string(text))
	if strings.Contains(replaced, "192.168.1.20:") {
		t.Fatal("the tutorial has another address")
	}
	w := &tutorial{files: make(map[string]string), folder: t.TempDir()}
	dir, err := built()
	must(t, err)
	w.env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "FARHAND_DATA_DIR=off"}
	blocks := regexp.MustCompile("(?ms)^```(sh|html|js)(?: (\\S+))?\n(.*?)^```").FindAllStringSubmatch(replaced, -1)
	for _, block := range blocks {
		if block[1] == "sh" {
			w.commands = append(w.commands, block[3])
		} else {
			w.files[block[2]] = block[3]
		}
	}
	return w
}

// next starts the commands of the next block, in a terminal with what earlier blocks have exported.
func (w *tutorial) next(t *testing.T, holds string) *program {
	t.Helper()
	if len(w.commands) == 0 || !strings.Contains(w.commands[0], holds) {
		t.Fatalf("the next commands are not %q: %q", holds, w.commands)
	}
	block := w.commands[0]
	w.commands = w.commands[1:]
	p := start(t, w.folder, w.env, "sh", "-ec", block)
	for line := range strings.Lines(block) {
		if export, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
			w.env = append(w.env, export)
		}
	}
	return p
}

// TestTutorial does what the tutorial says, with Chromium as the phone, and a scripted model.
func TestTutorial(t *testing.T) {
	t.Parallel()
	gateway, page := testkit.FreeAddr(t), testkit.FreeAddr(t)
	w := readTutorial(t, gateway, page)
	w.next(t, "farhand serve")
	ready(t, "http://"+gateway)
	w.commands[0] = strings.Replace(w.commands[0], "npm install @farhand/device @farhand/client openai", "", 1)
	if lines, ok := w.next(t, "npm init").rest(t); !ok {
		t.Fatalf("npm: %q", lines)
	}
	w.folder = filepath.Join(w.folder, "ask")
	install(t, w.folder)
	for name, text := range w.files {
		must(t, os.WriteFile(filepath.Join(w.folder, name), []byte(text), 0o600))
	}
	lines, ok := w.next(t, "farhand keys create").rest(t)
	key := regexp.MustCompile(`fhk_\S+`).FindString(strings.Join(lines, "\n"))
	if !ok || key == "" {
		t.Fatalf("no key: %q", lines)
	}
	w.next(t, "node serve.js").expect(t, page)

	said := make(chan string, 64)
	tab := chromiumtest.Open(t, chromiumtest.Start(t), func(text string) { said <- text })
	tab.Show("http://" + page + "/#http://" + gateway + "," + key)
	// when runs statements as soon as a condition holds, and reports it.
	when := func(condition, then, report string) {
		tab.Run(`{ const waiting = setInterval(() => {
			const buttons = [...document.querySelectorAll("button")];
			const state = document.getElementById("state").textContent;
			if (` + condition + `) { clearInterval(waiting); ` + then + `; report("` + report + `"); }
		}, 10) }`)
	}
	tap := func(answer string) {
		button := `buttons.find((b) => b.textContent === "` + answer + `")`
		when(button, button+".click()", answer)
	}
	when(`state === "connected"`, "", "connected")
	testkit.Receive(t, "the phone is a device", said)
	tap("coffee")
	lines, ok = w.next(t, "farhand call ask_me").rest(t)
	if !ok || !strings.Contains(strings.Join(lines, ""), "coffee") {
		t.Errorf("the call: %q", lines)
	}
	if got := testkit.Receive(t, "the tap", said); got != "coffee" {
		t.Errorf("the page says %q", got)
	}

	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == provider.RoleTool && strings.Contains(last.Content, `"tea"`) {
			return scripted.Reply(scripted.Text("You want ", "tea."))
		}
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "ask_me",
			Args: `{"question":"Which drink do you want?","answers":["tea","coffee"]}`}))
	})
	w.env = append(w.env, "OPENAI_BASE_URL="+model.URL)
	tap("tea")
	lines, ok = w.next(t, "node agent.js").rest(t)
	if !ok || len(lines) != 2 || !strings.HasPrefix(lines[0], "The model calls ask_me") ||
		lines[1] != "You want tea." {
		t.Errorf("the agent: %q", lines)
	}
	if len(w.commands) > 0 || len(w.files) != 3 {
		t.Errorf("the tutorial has more commands or files: %q", w.commands)
	}
}
