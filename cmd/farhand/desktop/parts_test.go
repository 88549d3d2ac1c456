package desktop

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A command is split as a shell splits it, and refused if a shell would do more.
func TestSplit(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		"uname -a":                 {"uname", "-a"},
		`a 'b c' "d e" f\ g`:       {"a", "b c", "d e", "f g"},
		`a 'x'"y"z ''`:             {"a", "xyz", ""},
		`a "\$x \" \\ \n" '\$'`:    {"a", `$x " \ \n`, `\$`},
		"a '*' '$x' '`id`' '~' #c": {"a", "*", "$x", "`id`", "~"},
		"a b=c -x=1":               {"a", "b=c", "-x=1"},
		"a \\\n b":                 {"a", "b"},
	} {
		if got, err := split(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", command, got, err)
		}
	}
	for _, command := range []string{
		"", "a; b", "a && b", "a | b", "a &", "! a", "a >b", "a <b", "x=1 a", "x=1", "a $b", `a "$b"`, "a $(b)",
		"a `b`",
		"a *", "a b?", "a [b]", "~/a", "(a)", "{ a; }", "if a; then b; fi", "a\nb", "f() { a; }", "a 'b", "a $((1))",
		"a <<x\nx",
	} {
		if got, err := split(command); !errors.Is(err, errShell) {
			t.Errorf("%q: %q, %v", command, got, err)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, command string
		allows        bool
	}{
		{"uptime", "uptime", true}, {"uptime", "uptime -p", false}, {"git log *", "git log", true},
		{"git log *", "git log main a..b", true}, {"git log *", "git push", false}, {"git *", "github", false},
		{"git log *", "git log --output=x", false}, {"git log *", "git log main '--output=x'", false},
		{"git log *", "git log -- x", false}, {"git log **", "git log main --output=x", true},
		{"git log **", "git log", true}, {"git log **", "git push", false}, {"git -p *", "git -p log", true},
		{"echo 'a b'", "echo a b", false}, {"echo 'a b'", `echo a\ b`, true},
	} {
		r, err := parseRule(c.rule)
		words, err2 := split(c.command)
		if err != nil || err2 != nil || r.allows(words) != c.allows {
			t.Errorf("%s, %s: %v, %v, %v", c.rule, c.command, r.allows(words), err, err2)
		}
	}
}

// The shown command is one line that has each word in quotes, whatever the words are made of.
func TestShownCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"a b", `"c"`, ""}, `"/bin/x" "a b" "\"c\"" ""`},
		{[]string{"a\nIt starts /bin/true", "é"}, `"/bin/x" "a\nIt starts /bin/true" "é"`},
		{[]string{"a\u202eb\u200bc\u2028d\x1b\xff"}, `"/bin/x" "a\u202eb\u200bc\u2028d\x1b\xff"`},
		{[]string{"a\u3164b"}, "\"/bin/x\" \"a\ufffdb\""}, // a letter without a shape
	} {
		if got := shownCommand("/bin/x", c.args); got != c.want {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
	if got := oneLine("a\nb\tc\u2028d\u200be"); got != "a b c\ufffdd\ufffde" {
		t.Errorf("%q", got)
	}
}

// Windows would give batch files to its shell.
func TestStartable(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		`C:\a.exe`: true, `C:\a.COM`: true, `C:\a.bat`: false, `C:\a.CMD`: false, `C:\a.cmd.`: false, `C:\a.bat `: false,
		`C:\a`: false, `C:\a.exe.bat`: false,
	} {
		if err := startable("windows", path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := startable("linux", "/bin/a.cmd"); err != nil {
		t.Error(err)
	}
}

// Only the person's word is an answer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]Answer{"No\r\n": No, "Allow": Once, "Always allow\n": Always, "": Unanswered} {
		if got := answerFrom([]byte(said), nil); got != want {
			t.Errorf("%q: %v", said, got)
		}
		if got := answerFrom([]byte(said), errTooLong); got != Unanswered {
			t.Errorf("%q of a failure: %v", said, got)
		}
	}
}

// A question that would not be seen as a whole is not asked.
func TestLongQuestions(t *testing.T) {
	t.Parallel()
	asked := 0
	ask := oneByOne(func(_ context.Context, q Question) Answer {
		asked++
		if strings.Contains(q.Text, "\u200b") {
			t.Errorf("%q", q.Text)
		}
		return Once
	})
	d := &Desktop{ask: ask, windowed: true, allowed: allowed{tools: map[string]bool{}}}
	if err := d.permit(t.Context(), "run", strings.Repeat("é", 499)+"\u200b", false); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	err := d.permit(t.Context(), "run", strings.Repeat("x", 501), false)
	if !errors.Is(err, errUnanswered) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if got := ask(t.Context(), Question{Text: strings.Repeat("x", 501)}); got != Unanswered || asked != 1 {
		t.Errorf("%v, asked %d times", got, asked)
	}
}

// Lists have this form on macOS and Windows, as in the sources of ffmpeg (avfoundation.m, dshow.c).
const avList = `[AVFoundation indev @ 0x14f604be0] AVFoundation video devices:
[AVFoundation indev @ 0x14f604be0] [0] FaceTime HD Camera
[AVFoundation indev @ 0x14f604be0] [1] Capture screen 0
[AVFoundation indev @ 0x14f604be0] AVFoundation audio devices:
[AVFoundation indev @ 0x14f604be0] [0] MacBook Pro Microphone
`

const oldList = `[dshow @ 000001] DirectShow video devices (some may be both video and audio devices)
[dshow @ 000001]  "Integrated Camera"
[dshow @ 000001]     Alternative name "@device_pnp_x"
[dshow @ 000001] DirectShow audio devices
[dshow @ 000001]  "Microphone (Realtek)"
[dshow @ 000001]     Alternative name "@device_cm_y"
`

const newList = `[in#0 @ 000002] "Integrated Camera" (video)
[in#0 @ 000002]   Alternative name "@device_pnp_x"
[in#0 @ 000002] "Microphone (Realtek)" (audio)
[in#0 @ 000002]   Alternative name "@device_cm_y"
`

func TestLists(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][2][]thing{
		avList:  {{{"0", "FaceTime HD Camera"}, {"1", "Capture screen 0"}}, {{"0", "MacBook Pro Microphone"}}},
		oldList: {{{"Integrated Camera", "Integrated Camera"}}, {{"Microphone (Realtek)", "Microphone (Realtek)"}}},
		newList: {{{"Integrated Camera", "Integrated Camera"}}, {{"Microphone (Realtek)", "Microphone (Realtek)"}}},
	} {
		for i, kind := range []string{"video", "audio"} {
			if got := parseList(strings.ReplaceAll(list, "\n", "\r\n"), kind); !slices.Equal(got, want[i]) {
				t.Errorf("%s: %q", kind, got)
			}
		}
	}
	const voices = "Albert              en_US    # Hello!\nBad News            en_US    # Hello!\n" +
		"Eddy (German (Germany)) de_DE    # Hallo!\nDaniel              en_GB    # Hello!\n"
	for language, want := range map[string]string{
		"en-GB": "Daniel", "de": "Eddy (German (Germany))", "EN": "Albert", "fr": "", "e": "",
	} {
		if got := voiceOf(voices, language); got != want {
			t.Errorf("%s: %q", language, got)
		}
	}
	for list, want := range map[string]bool{
		"Auto-detected sources for pulse:\n  alsa_output.x.monitor [Monitor of x]\n* alsa_input.x [Built-in]\n": true,
		"Auto-detected sources for pulse:\n* alsa_output.x.monitor [Monitor of x]\n":                            false,
		"Auto-detected sources for alsa:\n* null [Discard all samples]\n":                                       false,
		"Cannot list sources. Not implemented.\n":                                                               false,
	} {
		if got := hasSource(list); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
}

// Of a camera with several files, the one with index 0 has its pictures.
func TestCamerasOfLinux(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"video0/name": "Integrated Camera\n", "video0/index": "0\n", "video1/name": "Integrated Camera\n",
		"video1/index": "1\n", "video2/name": "USB Rear\n", "video2/index": "0\n", "video3/index": "0\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755),
			os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got := camerasOfLinux(dir, "/dev")
	if len(got) != 2 || got[0].ID != "/dev/video0" || got[0].Facing != "front" || got[1].Facing != "back" ||
		got[1].input.name != "/dev/video2" {
		t.Errorf("%+v", got)
	}
}

// What starts by itself is started with exactly its arguments.
func TestAutostart(t *testing.T) {
	t.Parallel()
	s := Start{
		Program: "/opt/far hand", Dir: "/home/a%b", Home: "/home/a",
		Args: []string{"device", `a "b" \`, "50%", "$x", "<&>", "é"}, SearchPath: "/usr/bin:/opt/bin",
		User: "S-1-5-21",
	}
	for system, want := range map[string][]string{
		"linux": {
			`ExecStart="/opt/far hand" "device" "a \"b\" \\" "50%%" "$$x" "<&>" "é"` + "\n",
			"WorkingDirectory=/home/a%%b\n",
		},
		"darwin": {
			"<string>/opt/far hand</string>", `<string>a &#34;b&#34; \</string>`, "<string>&lt;&amp;&gt;</string>",
			"<string>/usr/bin:/opt/bin</string>",
		},
		"windows": {
			`<Arguments>device &#34;a \&#34;b\&#34; \\&#34; 50% $x &lt;&amp;&gt; é</Arguments>`,
			"<Command>/opt/far hand</Command>", "<UserId>S-1-5-21</UserId>\n    </LogonTrigger>",
			"<UserId>S-1-5-21</UserId>\n      <LogonType>InteractiveToken</LogonType>",
		},
	} {
		a, err := NewAutostart(system, s)
		if err != nil || !strings.HasPrefix(a.Path, s.Home) {
			t.Fatalf("%s: %v, %q", system, err, a.Path)
		}
		for _, part := range want {
			if !strings.Contains(a.Text, part) {
				t.Errorf("%s lacks %s:\n%s", system, part, a.Text)
			}
		}
		if system == "linux" {
			continue
		}
		reader := xml.NewDecoder(strings.NewReader(a.Text))
		reader.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
		for err == nil {
			_, err = reader.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s is no XML: %v", system, err)
		}
	}
	if _, err := NewAutostart("plan9", s); err == nil {
		t.Error("a system without one has one")
	}
}

// New options also apply to what already runs.
func TestAutostartStartsAgain(t *testing.T) {
	t.Parallel()
	for system, want := range map[string]string{"linux": "restart", "darwin": "bootout"} {
		a, err := NewAutostart(system, Start{Home: "/home/a"})
		if err != nil || !slices.ContainsFunc(a.commands(), func(args []string) bool {
			return slices.Contains(args, want)
		}) {
			t.Errorf("%s: %v, %q", system, err, a.commands())
		}
	}
}

func TestWindowsWords(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"a": "a", "": `""`, "a b": `"a b"`, `a"b`: `"a\"b"`, `a\`: `a\`, `a b\`: `"a b\\"`, `a\"b c`: `"a\\\"b c"`,
	} {
		if got := windowsWord(word); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}
