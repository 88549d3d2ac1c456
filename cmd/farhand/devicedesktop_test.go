package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/cmd/farhand/desktop"
	"github.com/farhand/farhand/ws/client"
)

// bare is an environment without display, bus and programs.
var bare = []string{"PATH=", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"}

// A desktop says of each tool what does it, or what is missing, without a gateway.
func TestDesktopIsListed(t *testing.T) {
	t.Parallel()
	code, out, errOut := command(t, bare, "device", "--desktop", "--list", "--files", t.TempDir(), "--location", "1,2")
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	for _, want := range []string{
		"screenshot         -    there is no display", "location_get       yes  by --location\n",
		"run                yes  by programs", "file_read          yes  by /", "canvas_eval        -    " +
			"there is no display",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
}

// A desktop without a display is a device of a pod; its options decide what runs.
func TestDesktopIsADevice(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	environ := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	folder := t.TempDir()
	device := start(t, append(environ, "DISPLAY=", "WAYLAND_DISPLAY=", "DBUS_SESSION_BUS_ADDRESS=unix:path=/none"),
		farhandBinary, "device", "--session", "desk", "--desktop", "--confirm", "policy", "--allow-run", "echo *",
		"--files", folder, "--allow", "file_write")
	eventually(t, waitLimit, "the device is there", func() bool {
		return strings.Contains(device.out.String(), "session desk offers")
	})
	if shown := device.out.String(); !strings.Contains(shown, "not offered: ") || strings.Contains(shown, "canvas: ") {
		t.Errorf("%s", shown)
	}
	for _, c := range []struct {
		tool, args, want string
		code             int
	}{
		{"run", `{"command":"echo 'a  b'"}`, `"stdout":"a  b\n"`, 0},
		{"run", `{"command":"id"}`, "did not allow", 1},
		{"file_write", `{"path":"a/b","text":"x"}`, `{"bytes":1}`, 0},
		{"file_read", `{"path":"a/b"}`, "x", 0},
		{"device_info", `{}`, runtime.GOOS, 0},
	} {
		code, out, errOut := command(t, environ, "call", c.tool, c.args)
		if code != c.code || !strings.Contains(out+errOut, c.want) {
			t.Errorf("%s %s: exit %d\n%s%s", c.tool, c.args, code, out, errOut)
		}
	}
	if got, err := os.ReadFile(filepath.Join(folder, "a/b")); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDesktopOptions(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--desktop", "--simulate"}, {"--desktop", "--node"}, {"--desktop", "--mcp", "x"}, {"--location", "1,2"},
		{"--allow", "run"}, {"--allow-run", "x"}, {"--files", "/tmp"}, {"--confirm", "policy"}, {"--camera", "a:b"},
		{"--desktop", "--confirm", "terminal"}, {"--desktop", "--confirm", "x"}, {"--desktop", "--allow", "x"},
		{"--desktop", "--location", "x"}, {"--desktop", "--list", "--files", "/nonexistent"},
		{"--autostart", "--token", "x"}, {"--autostart", "--token=x"}, {"--install"}, {"--desktop", "--install"},
		{"--list"}, {"--autostart", "--allow", "run"}, {"--autostart", "--desktop", "--confirm", "terminal"},
	} {
		if code, out, _ := command(t, bare, append([]string{"device"}, args...)...); code != exitError || out != "" {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
}

// What starts with the login is the same command, with the gateway of the environment and without its token.
func TestAutostartIsPrinted(t *testing.T) {
	t.Parallel()
	environ := append(slices.Clone(bare), "FARHAND_URL=https://gateway.example.com", "FARHAND_TOKEN=secret-token")
	code, out, errOut := command(t, environ, "device", "--desktop", "--autostart", "--allow-run", "df *", "--pair")
	if code != 0 || strings.Contains(out, "secret-token") || !strings.Contains(errOut, "--install") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	const want = `"device" "--desktop" "--allow-run" "df *" "--pair" "--server" "https://gateway.example.com"` + "\n"
	if runtime.GOOS == "linux" && !strings.Contains(out, want) {
		t.Errorf("%s", out)
	}
}

// Questions of the desktop and of the gateway get the same answers.
func TestPermittedAtTheTerminal(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]desktop.Answer{
		"y": desktop.Once, "always": desktop.Always, "n": desktop.No, "": desktop.Unanswered,
	} {
		out, lines := make(screen, 8), make(chan string)
		answered := make(chan desktop.Answer, 1)
		go func() {
			q := desktop.Question{Text: "May\x1b[2J it?\nNow", Lasting: true}
			answered <- newTerminalApprover(out, lines).permit(t.Context(), q)
		}()
		shown := <-out
		if typed != "" {
			lines <- typed
		}
		close(lines)
		if got := <-answered; got != want || strings.Contains(shown, "\x1b") ||
			!strings.Contains(shown, "it?\n  Now\n") {
			t.Errorf("%q: %v, %q", typed, got, shown)
		}
	}
	for answer, want := range map[desktop.Answer]client.Decision{
		desktop.Once: client.AllowOnce, desktop.Always: client.AllowAlways, desktop.No: client.Deny,
		desktop.Unanswered: "",
	} {
		decide := approverOf(func(context.Context, desktop.Question) desktop.Answer { return answer })
		if got := decide(t.Context(), client.Question{Tool: "snap"}); got != want {
			t.Errorf("%v: %q", answer, got)
		}
	}
	if approverOf(nil) != nil {
		t.Error("a desktop that asks nothing decides")
	}
}

// A desktop that starts by itself has no terminal to ask at.
func TestNullIsNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) {
		t.Error("questions would be asked in the null device")
	}
}
