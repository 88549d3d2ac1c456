package desktop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/cmd/farhand/desktop"
	"github.com/farhand/farhand/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a configuration that lets this machine offer all tools. Its camera and microphone are generated.
func everything(t *testing.T, s *stage) desktop.Config {
	t.Helper()
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "a.txt"), []byte("text\n"), 0o600))
	return desktop.Config{
		Environ: s.environ, Confirm: desktop.ByPolicy, Folder: folder, Commands: []string{"uname -s", "echo *"},
		Camera: "lavfi:testsrc=size=160x120:rate=15", Microphone: "lavfi:sine",
		Allow: []string{
			"clipboard_read", "open_url", "screenshot", "screen_record", "camera_snap", "camera_clip", "audio_clip",
			"location_get", "file_write",
		},
	}
}

// A real desktop offers every tool, and each does through a gateway what the device page's does.
func TestEveryToolWorks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := connect(t, everything(t, s))
	used := map[string]bool{}
	use := func(t *testing.T, name, args string) answer {
		t.Helper()
		used[name] = true
		a := d.call(t.Context(), t, name, args)
		if !a.Success {
			t.Fatalf("%s: %+v", name, a)
		}
		return a
	}
	t.Run("notify", func(t *testing.T) { testNotify(t, s, use) })
	t.Run("clipboard", func(t *testing.T) { testClipboard(t, s, use) })
	t.Run("open_url", func(t *testing.T) { testOpenURL(t, s, d, use) })
	t.Run("pictures", func(t *testing.T) { testPictures(t, d, use) })
	t.Run("recordings", func(t *testing.T) { testRecordings(t, d, use) })
	t.Run("speak", func(t *testing.T) {
		a := use(t, "speak", `{"text":"Hello, 'world' $(id).","language":"en-GB","rate":2}`)
		// The file of the sound card is made when a program opens the card.
		if _, err := os.Stat(filepath.Join(s.dir, "spoken")); err != nil || a.Output != "spoken" {
			t.Errorf("%+v: %v", a, err)
		}
	})
	t.Run("location_get", func(t *testing.T) {
		const want = `{"latitude":48.2083,"longitude":16.3731,"source":"geoclue","accuracy_m":25,` +
			`"at":"2023-11-14T22:13:20Z"}`
		if a := use(t, "location_get", `{}`); a.Output != want {
			t.Errorf("%s", a.Output)
		}
	})
	t.Run("run", func(t *testing.T) { testRun(t, d, use) })
	t.Run("files", func(t *testing.T) { testFiles(t, d, use) })
	for _, name := range d.names {
		if !used[name] {
			t.Errorf("%s was not used", name)
		}
	}
	for _, o := range d.offers {
		if o.Missing != "" {
			t.Errorf("%s: %s", o.Name, o.Missing)
		}
	}
}

// useTool calls a tool that must succeed.
type useTool func(t *testing.T, name, args string) answer

func testNotify(t *testing.T, s *stage, use useTool) {
	a := use(t, "notify", `{"title":"Tea <1>","body":"is <b>ready</b> & hot"}`)
	shown := s.notices.next(t)
	if a.Output != "shown" || shown.title != "Tea <1>" || shown.body != "is &lt;b&gt;ready&lt;/b&gt; &amp; hot" ||
		len(shown.actions) != 0 {
		t.Errorf("%+v, %+v", a, shown)
	}
}

func testOpenURL(t *testing.T, s *stage, d *device, use useTool) {
	use(t, "open_url", `{"url":"https://example.com/?a=1&b=$(id)"}`)
	testkit.Eventually(t, "the browser got the address", func() bool {
		got, _ := os.ReadFile(filepath.Join(s.dir, "opened"))
		return string(got) == "https://example.com/?a=1&b=$(id)\n"
	})
	for _, address := range []string{"file:///etc/passwd", "https://a:b@example.com", "-x", "javascript:1"} {
		if a := d.call(t.Context(), t, "open_url", `{"url":"`+address+`"}`); a.Success {
			t.Errorf("%s was opened", address)
		}
	}
}

func testClipboard(t *testing.T, s *stage, use useTool) {
	for _, text := range []string{"é\n\n$(id) ", strings.Repeat("0123456789abcdef", 12<<10), ""} {
		args, err := json.Marshal(map[string]string{"text": text})
		must(t, err)
		if a := use(t, "clipboard_write", string(args)); a.Output != "copied" {
			t.Errorf("%+v", a)
		}
		if text != "" { // another program sees it
			cmd := exec.CommandContext(t.Context(), "xclip", "-selection", "clipboard", "-out")
			cmd.Env = s.environ
			if out, err := cmd.Output(); err != nil || string(out) != text {
				t.Errorf("%d bytes, want %d: %v", len(out), len(text), err)
			}
		}
		var got struct {
			Text string
			Cut  bool
		}
		must(t, json.Unmarshal([]byte(use(t, "clipboard_read", `{}`).Output), &got))
		if got.Text != text || got.Cut {
			t.Errorf("%d bytes, want %d; cut: %v", len(got.Text), len(text), got.Cut)
		}
	}
}

func testPictures(t *testing.T, d *device, use useTool) {
	a := use(t, "screenshot", `{}`)
	screen, kind, err := image.Decode(bytes.NewReader(d.file(t, a, 0)))
	if err != nil || kind != "png" || screen.Bounds().Dx() != 320 || a.Parts[0].Type != "image" {
		t.Fatalf("%s, %v", kind, err)
	}
	if got := color.GrayModel.Convert(screen.At(160, 120)); got != (color.Gray{255}) {
		t.Errorf("the screen is white, the picture is %v", got)
	}
	if a := use(t, "camera_list", `{}`); !strings.Contains(a.Output, `"facing":"unknown"`) {
		t.Errorf("%s", a.Output)
	}
	a = use(t, "camera_snap", `{"facing":"both"}`)
	for i, name := range []string{"front.jpg", "back.jpg"} {
		picture, kind, err := image.Decode(bytes.NewReader(d.file(t, a, i)))
		if err != nil || kind != "jpeg" || picture.Bounds().Dx() != 160 || a.Parts[i].Name != name {
			t.Errorf("%s: %s, %v", name, kind, err)
		}
	}
}

func testRecordings(t *testing.T, d *device, use useTool) {
	for _, c := range []struct {
		name, args string
		mime       string
		kinds      string
		width      int
	}{
		{"screen_record", `{"duration_ms":1000}`, "video/mp4", "video", 320},
		{"camera_clip", `{"duration_ms":1000}`, "video/mp4", "video+audio", 160},
		{"audio_clip", `{"duration_ms":1000}`, "audio/mp4", "audio", 0},
	} {
		a := use(t, c.name, c.args)
		got := probe(t, d.file(t, a, 0))
		if a.Parts[0].MIMEType != c.mime || got.kinds != c.kinds || got.width != c.width ||
			got.seconds < 0.8 || got.seconds > 1.2 {
			t.Errorf("%s: %+v, %+v", c.name, got, a.Parts[0].MIMEType)
		}
	}
}

func testRun(t *testing.T, d *device, use useTool) {
	if a := use(t, "run", `{"command":"uname -s"}`); !strings.Contains(a.Output, `"stdout":"Linux\n"`) {
		t.Errorf("%s", a.Output)
	}
	a := use(t, "run", `{"command":"echo 'a  $b' d\\ e"}`)
	if !strings.Contains(a.Output, `"stdout":"a  $b d e\n"`) {
		t.Errorf("%s", a.Output)
	}
	for _, command := range []string{
		"uname -a", "uname", "echo x; id", "echo $(id)", "echo x >y", "no-such-program", `echo "$HOME"`,
	} {
		args, err := json.Marshal(map[string]string{"command": command})
		must(t, err)
		if a := d.call(t.Context(), t, "run", string(args)); a.Success {
			t.Errorf("%s ran: %s", command, a.Output)
		}
	}
}

func testFiles(t *testing.T, d *device, use useTool) {
	if a := use(t, "file_read", `{"path":"a.txt"}`); a.Output != "text\n" {
		t.Errorf("%+v", a)
	}
	if a := use(t, "file_write", `{"path":"new/b.txt","text":"é"}`); a.Output != `{"bytes":2}` {
		t.Errorf("%+v", a)
	}
	file := filepath.Join(d.folder, "new/b.txt")
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	must(t, os.Chmod(file, 0o640))
	use(t, "file_write", `{"path":"new/b.txt","text":"again"}`)
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if a := use(t, "file_read", `{"path":"new/b.txt"}`); a.Output != "again" {
		t.Errorf("%+v", a)
	}
	if a := use(t, "file_list", `{}`); !strings.Contains(a.Output, `"name":"a.txt","type":"file","bytes":5`) ||
		!strings.Contains(a.Output, `"name":"new","type":"folder"`) {
		t.Errorf("%s", a.Output)
	}
	if a := use(t, "file_list", `{"path":"new"}`); strings.Contains(a.Output, ".farhand-") {
		t.Errorf("%s", a.Output)
	}
}

// Files outside of the shared folder are out of reach, and what is no file does not block.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	outside, folder := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(folder, "link")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(folder, "file")))
	must(t, syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))
	large := bytes.Repeat([]byte{0, 1, 2, 3}, 1<<18)
	must(t, os.WriteFile(filepath.Join(folder, "large.bin"), large, 0o600))
	d := connect(t, desktop.Config{
		Environ: []string{"PATH="}, Folder: folder, Confirm: desktop.ByPolicy, Allow: []string{"file_write"},
	})
	for _, c := range [][2]string{
		{"file_read", `{"path":"link/secret"}`}, {"file_read", `{"path":"file"}`}, {"file_read", `{"path":"pipe"}`},
		{"file_read", `{"path":"../secret"}`}, {"file_read", `{"path":"/etc/passwd"}`}, {"file_read", `{"path":"."}`},
		{"file_list", `{"path":"link"}`}, {"file_write", `{"path":"link/secret","text":"x"}`},
		{"file_write", `{"path":"file","text":"x"}`}, {"file_write", `{"path":"pipe","text":"x"}`},
		{"file_write", `{"path":".","text":"x"}`},
	} {
		if a := d.call(t.Context(), t, c[0], c[1]); a.Success {
			t.Errorf("%s %s: %+v", c[0], c[1], a)
		}
	}
	if got, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(got) != "secret" {
		t.Errorf("%q, %v", got, err)
	}
	text := strings.Repeat("é\x01", 256<<10/3) + "x"
	must(t, os.WriteFile(filepath.Join(folder, "text"), []byte(text), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "longer"), []byte(text+"x"), 0o600))
	if a := d.call(t.Context(), t, "file_read", `{"path":"text"}`); !a.Success || a.Output != text {
		t.Errorf("%d bytes, %s", len(a.Output), a.Error)
	}
	if a := d.call(t.Context(), t, "file_read", `{"path":"longer"}`); !a.Success || string(d.file(t, a, 0)) != text+
		"x" {
		t.Errorf("%.200s, %s", a.Output, a.Error)
	}
	a := d.call(t.Context(), t, "file_read", `{"path":"large.bin"}`)
	if !a.Success || !bytes.Equal(d.file(t, a, 0), large) {
		t.Errorf("%+v", a)
	}
}

// Desktops with Wayland take pictures of the screen through a service, which leaves a file.
func TestScreenshotThroughThePortal(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := desktop.Config{Confirm: desktop.ByPolicy, Allow: []string{"screenshot"}}
	for _, kv := range s.environ { // the stage may have no program of its desktop
		if !strings.HasPrefix(kv, "PATH=") {
			cfg.Environ = append(cfg.Environ, kv)
		}
	}
	cfg.Environ = append(cfg.Environ, "WAYLAND_DISPLAY=wayland-0")
	if d := connect(t, cfg); slices.Contains(d.names, "screenshot") {
		t.Error("without a portal screenshots are offered")
	}
	servePortal(t, s.bus, s.dir)
	d := connect(t, cfg)
	a := d.call(t.Context(), t, "screenshot", `{}`)
	if !a.Success || string(d.file(t, a, 0)) != "picture" {
		t.Errorf("%+v", a)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*.png")); len(left) > 0 {
		t.Errorf("the portal's file is left: %v", left)
	}
}

// A machine without display, bus and programs says of each tool what is missing.
func TestMissingToolsSayWhy(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"linux", "darwin", "windows"} {
		d, err := desktop.New(t.Context(), desktop.Config{
			System: system, Environ: []string{"PATH=", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"},
		})
		must(t, err)
		for _, o := range d.Offers(t.Context()) {
			if (o.Missing == "") != (o.Name == "run") {
				t.Errorf("%s: %s: %q", system, o.Name, o.Missing)
			}
		}
	}
	for _, cfg := range []desktop.Config{
		{Confirm: desktop.ByTerminal}, {Confirm: desktop.ByNotification}, {Confirm: "x"}, {Allow: []string{"x"}},
		{Commands: []string{"a | b"}}, {Camera: "x"}, {Microphone: ":x"}, {Folder: "/nonexistent"},
	} {
		if _, err := desktop.New(t.Context(), cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// A program that takes too long is killed with what it started, and one that prints too much is stopped.
func TestRunIsBounded(t *testing.T) {
	t.Parallel()
	d := connect(t, desktop.Config{
		Environ: []string{"PATH=" + os.Getenv("PATH")}, Commands: []string{"sh **", "head **"},
	})
	a := d.call(t.Context(), t, "run", `{"command":"head -c 300000 /dev/zero"}`)
	if !a.Success || !strings.Contains(a.Output, `"cut":true`) {
		t.Errorf("%.200s, %s", a.Output, a.Error)
	}
	file := filepath.Join(t.TempDir(), "pid")
	d.timeout = 1500
	args, err := json.Marshal(map[string]string{"command": "sh -c 'sleep 3600 & echo $! >" + file + "; wait'"})
	must(t, err)
	if a := d.call(t.Context(), t, "run", string(args)); a.Success {
		t.Errorf("%+v", a)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	testkit.Eventually(t, "what it started has ended", func() bool {
		p, err := os.FindProcess(pid)
		return err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
	})
}
