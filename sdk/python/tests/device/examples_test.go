package device_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
)

// copyFiles copies the files of a folder.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.CopyFS(to, os.DirFS(from)))
}

// TestExample runs examples/device-python. SIGTERM ends it without an error.
func TestExample(t *testing.T) {
	t.Parallel()
	pod, dir := startPod(t), t.TempDir()
	copyFiles(t, "../../../../examples/device-python", dir)
	write(t, filepath.Join(dir, "picture.png"), "\x89PNG")
	p := startPython(t, dir, "device.py", pod)
	p.expect(t, "connected")
	call(t, pod, "add_notes", `{"notes":[{"text":"Milk","list":"shopping"},{"text":"rest"}]}`, "2 kept.")
	call(t, pod, "add_notes", `{"notes":[{"text":"Milk","list":"none"}]}`, "invalid_arguments")
	call(t, pod, "find_notes", `{"word":"milk"}`, "shopping: Milk")
	call(t, pod, "timer", `{"seconds":1}`, "The time is over.")
	call(t, pod, "picture", `{"path":"picture.png"}`, `"data":"iVBORw=="`)
	if stderr := p.end(syscall.SIGTERM); stderr != "" || p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("it ended with %v and wrote %s", p.cmd.ProcessState, stderr)
	}
}

// TestRaspberryPi runs examples/device-raspberry-pi as its unit does, with the simulated pins of gpiozero: it is paired
// once, and is so after a restart.
func TestRaspberryPi(t *testing.T) {
	t.Parallel()
	pod, dir := startPod(t), t.TempDir()
	copyFiles(t, "../../../../examples/device-raspberry-pi", dir)
	unit, err := os.ReadFile(filepath.Join(dir, "farhand-pi.service"))
	must(t, err)
	const folder = "/opt/farhand-pi/"
	command := `(?m)^ExecStart=` + folder + `venv/bin/python ` + folder + `(\S+) https://gateway.example.com$`
	m := regexp.MustCompile(command).FindSubmatch(unit)
	if m == nil || !strings.Contains(string(unit), "\nKillSignal=SIGINT\n") {
		t.Fatalf("the unit is %s", unit)
	}
	for again := range 2 {
		p := startPython(t, dir, string(m[1]), pod)
		if again == 0 {
			approvePairing(t, pod, p.expect(t, "farhand pair approve "))
		}
		p.expect(t, "connected")
		call(t, pod, "status", `{}`, `"relays":{"lamp":false,"pump":false},"door_closed":false`)
		call(t, pod, "switch", `{"relay":"lamp","on":true}`, "The lamp is on.")
		call(t, pod, "switch", `{"relay":"door","on":true}`, "invalid_arguments")
		call(t, pod, "status", `{}`, `"relays":{"lamp":true,"pump":false}`)
		call(t, pod, "wait_for_door", `{"closed":false}`, "The door is open.")
		p.end(syscall.SIGINT)
	}
}

// model answers requests for chat completions: it calls disk_free, and then says what the tool returned.
func model(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	last := request.Messages[len(request.Messages)-1]
	delta := map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
		"index": 0, "id": "1", "type": "function",
		"function": map[string]any{"name": "disk_free", "arguments": `{"path":"/"}`},
	}}}
	reason := "tool_calls"
	if last.Role == "tool" {
		reason, delta = "stop", map[string]any{"role": "assistant", "content": "The disk says: " + last.Content}
	}
	text, _ := json.Marshal(map[string]any{
		"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-mini",
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}},
	})
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", text)
}

// TestTutorial does what docs/tutorial-python.md says, from an empty folder. Only the model is another one.
func TestTutorial(t *testing.T) {
	t.Parallel()
	farhand, err := gateway()
	must(t, err)
	models := httptest.NewServer(http.HandlerFunc(model))
	t.Cleanup(models.Close)
	dir, address := t.TempDir(), testkit.FreeAddr(t)
	variables := append(offline(project(t), environment(t)), "PATH="+filepath.Dir(farhand)+":"+os.Getenv("PATH"),
		"HOME="+dir, "FARHAND_ADDR="+address, "FARHAND_URL=http://"+address, "OPENAI_BASE_URL="+models.URL)
	shell := blocks(t, "../../../../docs/tutorial-python.md", "sh")
	python := blocks(t, "../../../../docs/tutorial-python.md", "python")
	said := blocks(t, "../../../../docs/tutorial-python.md", "text")
	if len(shell) != 6 || len(python) != 2 || len(said) != 3 {
		t.Fatalf("the tutorial has %d, %d and %d blocks", len(shell), len(python), len(said))
	}
	sh := func(i int, want string) {
		t.Helper()
		if out := run(t, dir, variables, "sh", "-ec", shell[i]); !strings.Contains(out, strings.TrimSpace(want)) {
			t.Errorf("%s printed %s, not %s", shell[i], out, want)
		}
	}
	save := func(text string) {
		write(t, filepath.Join(dir, "disk.py"), strings.ReplaceAll(text, "http://127.0.0.1:8080", "http://"+address))
	}
	start(t, dir, variables, "sh", "-c", "exec env "+shell[0])
	sh(1, "")
	save(python[0])
	device := start(t, dir, variables, "sh", "-c", "exec "+shell[2])
	device.expect(t, "connected")
	sh(3, said[0])
	sh(4, said[1])
	sh(5, said[2])
	sh(5, `The disk says: `)

	device.end(syscall.SIGINT)
	decorator := strings.SplitN(python[1], "\n", 2)[0]
	save(strings.Replace(python[0], `@device.tool(hints={"readOnlyHint": True})`, decorator, 1))
	device = start(t, dir, variables, "sh", "-c", "exec "+shell[2])
	device.expect(t, "connected")
	chat := start(t, dir, variables, "sh", "-c", "exec "+shell[5])
	var waiting string
	testkit.Eventually(t, "the question", func() bool {
		waiting = run(t, dir, variables, farhand, "approve", "list", "--json")
		return strings.Contains(waiting, "disk_free")
	})
	id := regexp.MustCompile(`"id": ?"([^"]+)"`).FindStringSubmatch(waiting)[1]
	run(t, dir, variables, farhand, "approve", "allow", id)
	chat.expect(t, "The disk says: ")
}
