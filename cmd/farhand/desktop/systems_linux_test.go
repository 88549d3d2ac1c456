package desktop_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/farhand/farhand/cmd/farhand/desktop"
	"github.com/farhand/farhand/cmd/farhand/nodetools"
)

// A recorder stands for a program of another system: it writes down its arguments and its input, and prints an answer.
const recorder = `#!/bin/sh
for word in "$@"; do printf '%s\0' "$word"; done >"$RECORDED/$(basename "$0").args"
[ -n "$DESKTOP_ARGUMENTS" ] && cp "$DESKTOP_ARGUMENTS" "$RECORDED/arguments.json"
cat >"$RECORDED/$(basename "$0").in"
for word in "$@"; do case "$word" in /*.png | /*.mov) printf picture >"$word" ;; esac; done
cat "$RECORDED/$(basename "$0").says" 2>/dev/null
exit 0
`

// foreign is another system's desktop, whose programs are recorders.
type foreign struct {
	*device
	dir string
}

func newForeign(t *testing.T, system string, programs ...string) foreign {
	t.Helper()
	f := foreign{dir: t.TempDir()}
	for _, name := range programs {
		must(t, os.WriteFile(filepath.Join(f.dir, name), []byte(recorder), 0o755))
	}
	f.device = connect(t, desktop.Config{
		System: system, Environ: []string{"PATH=" + f.dir + ":/usr/bin:/bin", "RECORDED=" + f.dir},
		Confirm: desktop.ByPolicy,
		Allow:   []string{"clipboard_read", "open_url", "screenshot", "screen_record", "location_get"},
	})
	return f
}

// says sets what a program prints.
func (f foreign) says(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(f.dir, name+".says"), []byte(text), 0o600))
}

// got returns the arguments and the input of a program's last run.
func (f foreign) got(t *testing.T, name string) (args []string, in string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, name+".args"))
	must(t, err)
	input, err := os.ReadFile(filepath.Join(f.dir, name+".in"))
	must(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), string(input)
}

// The programs of macOS get texts of agents as arguments or input, never as a part of a script.
func TestProgramsOfMacOS(t *testing.T) {
	t.Parallel()
	f := newForeign(t, "darwin", "osascript", "pbcopy", "pbpaste", "open", "say", "screencapture", "CoreLocationCLI")
	f.says(t, "pbpaste", "copied é")
	f.says(t, "say", "Daniel              en_GB    # Hello!\n")
	f.says(t, "CoreLocationCLI", `{"latitude":"48.2","longitude":"16.3","h_accuracy":"65.0"}`)
	for _, c := range []struct {
		tool, args, output string
		program, in        string
		words              []string // the last ones
	}{
		{"notify", `{"body":"\" & (do shell script \"id\")"}`, "shown", "osascript", "",
			[]string{"--", "Farhand", `" & (do shell script "id")`}},
		{"clipboard_write", `{"text":"-x"}`, "copied", "pbcopy", "-x", []string{""}},
		{"clipboard_read", `{}`, `{"text":"copied é","cut":false}`, "pbpaste", "", []string{""}},
		{"open_url", `{"url":"https://example.com"}`, "opened", "open", "", []string{"https://example.com"}},
		{"speak", `{"text":"-v x","language":"en","rate":2}`, "spoken", "say", "-v x",
			[]string{"-r", "350", "-f", "-", "-v", "Daniel"}},
		{"location_get", `{}`, `{"latitude":48.2,"longitude":16.3,"source":"corelocation","accuracy_m":65}`,
			"CoreLocationCLI", "", []string{"--json"}},
	} {
		a := f.call(t.Context(), t, c.tool, c.args)
		args, in := f.got(t, c.program)
		if !a.Success || a.Output != c.output || in != c.in ||
			!slices.Equal(args[max(0, len(args)-len(c.words)):], c.words) {
			t.Errorf("%s: %+v; %s got %q, %q", c.tool, a, c.program, args, in)
		}
	}
	for tool, args := range map[string]string{"screenshot": `{}`, "screen_record": `{"duration_ms":2500}`} {
		a := f.call(t.Context(), t, tool, args)
		if !a.Success || string(f.file(t, a, 0)) != "picture" {
			t.Errorf("%s: %+v", tool, a)
		}
		if words, _ := f.got(t, "screencapture"); tool == "screen_record" &&
			!slices.Equal(words[:4], []string{"-x", "-v", "-V", "2.5"}) {
			t.Errorf("%q", words)
		}
	}
}

// The scripts of Windows get texts of agents in a file, never as a part of the script.
func TestScriptsOfWindows(t *testing.T) {
	t.Parallel()
	f := newForeign(t, "windows", "powershell.exe", "rundll32.exe")
	const place = `{"latitude":48.2,"longitude":16.3,"accuracy":65}`
	for _, c := range []struct{ tool, args, says, output, arguments, script string }{
		{"notify", `{"title":"$(id)","body":"é"}`, "", "shown", `{"Title":"$(id)","Body":"é"}`, "ToastNotification"},
		{"clipboard_write", `{"text":"'; id"}`, "", "copied", `{"Text":"'; id"}`, "SetText"},
		{"clipboard_read", `{}`, "\ufeffé", `{"text":"é","cut":false}`, `{}`, "Get-Clipboard"},
		{"speak", `{"text":"a","language":"en-GB","rate":0.5}`, "", "spoken",
			`{"Text":"a","Language":"en-GB","Rate":-10}`, "SpeechSynthesizer"},
		{"location_get", `{}`, place, `{"latitude":48.2,"longitude":16.3,"source":"windows","accuracy_m":65}`, `{}`,
			"GeoCoordinateWatcher"},
		{"screenshot", `{}`, "", "A picture of the screen.", "", "CopyFromScreen"},
	} {
		f.says(t, "powershell.exe", c.says)
		a := f.call(t.Context(), t, c.tool, c.args)
		words, _ := f.got(t, "powershell.exe")
		script := decodeScript(t, words[len(words)-1])
		if !a.Success && c.tool != "screenshot" || a.Success && a.Output != c.output ||
			!strings.Contains(script, c.script) || !strings.HasPrefix(script, "$ErrorActionPreference = 'Stop'\n") {
			t.Errorf("%s: %+v\n%s", c.tool, a, script)
		}
		got, err := os.ReadFile(filepath.Join(f.dir, "arguments.json"))
		must(t, err)
		var values any
		if err := json.Unmarshal(got, &values); err != nil || c.arguments != "" && string(got) != c.arguments {
			t.Errorf("%s: %s, %v", c.tool, got, err)
		}
	}
	if a := f.call(t.Context(), t, "open_url", `{"url":"https://example.com/?a&calc"}`); !a.Success {
		t.Errorf("%+v", a)
	}
	if words, _ := f.got(t, "rundll32.exe"); !slices.Equal(words,
		[]string{"url.dll,FileProtocolHandler", "https://example.com/?a&calc"}) {
		t.Errorf("%q", words)
	}
}

// decodeScript reverses -EncodedCommand.
func decodeScript(t *testing.T, encoded string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(encoded)
	must(t, err)
	var units []uint16
	for i := 0; i+1 < len(data); i += 2 {
		units = append(units, uint16(data[i])|uint16(data[i+1])<<8)
	}
	return string(utf16.Decode(units))
}

// Windows of macOS and Windows ask where there are no notifications with buttons.
func TestAskedInAWindow(t *testing.T) {
	t.Parallel()
	for system, program := range map[string]string{"darwin": "osascript", "windows": "powershell.exe"} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, program), []byte(recorder), 0o755))
		f := foreign{dir: dir}
		d, err := desktop.New(t.Context(), desktop.Config{
			System: system, Environ: []string{"PATH=" + dir + ":/usr/bin:/bin", "RECORDED=" + dir},
			Location: &nodetools.Location{},
		})
		must(t, err)
		for says, want := range map[string]desktop.Answer{
			"Allow\n": desktop.Once, "Always allow": desktop.Always, "No": desktop.No, "": desktop.Unanswered,
			"x": desktop.Unanswered,
		} {
			f.says(t, program, says)
			if got := d.Asks()(t.Context(), desktop.Question{Text: "May it?\n$(id)", Lasting: true}); got != want {
				t.Errorf("%s said %q: %v, want %v", system, says, got, want)
			}
		}
		if words, _ := f.got(t, program); system == "darwin" &&
			!slices.Equal(words[len(words)-5:], []string{"--", "May it?\n$(id)", "No", "Allow", "Always allow"}) {
			t.Errorf("%q", words)
		}
		must(t, d.Close())
	}
}

// A page on the canvas is a page that the person is asked about, as by open_url.
func TestCanvasPagesAreAllowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "open"), []byte(recorder), 0o755))
	for _, allowed := range [][]string{nil, {"open_url"}} {
		d := connect(t, desktop.Config{
			System: "darwin", Environ: []string{"PATH=" + dir}, Confirm: desktop.ByPolicy, Allow: allowed,
			Canvas: nodetools.NewCanvas(false),
		})
		for _, tool := range []string{"canvas_present", "canvas_navigate"} {
			a := d.call(t.Context(), t, tool, `{"url":"https://example.com/"}`)
			if a.Success != (allowed != nil) || !a.Success && !strings.Contains(a.Error, "open_url") {
				t.Errorf("%s with %q: %+v", tool, allowed, a)
			}
		}
		if a := d.call(t.Context(), t, "canvas_present", `{}`); !a.Success {
			t.Errorf("the canvas itself: %+v", a)
		}
	}
}
