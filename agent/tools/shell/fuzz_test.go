package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// tokens reads what check has written back, with nothing of the parser that check uses: words in single quotes, joined
// by a space, a quote written as '\”, and four operators. ok is false for anything else.
func tokens(script string) (segments [][]string, ok bool) {
	for script != "" {
		var words []string
		for {
			var word strings.Builder
			for {
				if script == "" || script[0] != '\'' {
					return nil, false
				}
				text, rest, closed := strings.Cut(script[1:], "'")
				if !closed {
					return nil, false
				}
				word.WriteString(text)
				if script = rest; !strings.HasPrefix(script, `\''`) {
					break
				}
				word.WriteByte('\'')
				script = script[2:]
			}
			words = append(words, word.String())
			if !strings.HasPrefix(script, " '") {
				break
			}
			script = script[1:]
		}
		segments = append(segments, words)
		if script == "" {
			break
		}
		i := slices.IndexFunc([]string{" | ", " && ", " || ", " &\n", "\n"}, func(op string) bool {
			return strings.HasPrefix(script, op)
		})
		if i < 0 {
			return nil, false
		}
		script = script[len([]string{" | ", " && ", " || ", " &\n", "\n"}[i]):]
	}
	return segments, true
}

// FuzzCommandPolicy reads any command. Whatever is accepted consists of allowed programs only, by a reader that has
// nothing in common with the parser, has nothing that leads out of the workspace, is accepted again as it is written
// back, and a shell takes it. Nothing takes long.
func FuzzCommandPolicy(f *testing.F) {
	for _, command := range []string{
		"ls", "ls -la | grep x && echo 'it'\\''s' || cat f; find . -name 'x' &", "echo $(id)", "a=ls; $a", "ls\nid",
		"cat <<EOF\nEOF", "find . -exec id ';'", "l\\s", "ec\\\nho", "echo \"a$\"", "((((", "${a:-`b`}",
		"if ls; then ls; fi",
		"echo {a,b}", "ls > f", "LD_PRELOAD=x ls", "! ls", "ls |& cat", "echo '", "cat /etc/passwd", "cat a/../../x",
		"$'ls'", "ls\u2028id", "env ls", "echo a\\", "'ls' \"-l\"a", "ls &;", "echo ~", "f(){ ls; }; f", "echo \\'",
		"ls;;",
	} {
		f.Add(command)
	}
	a := allowlist{allow: strings.Fields("ls cat grep find echo env"), inside: true}
	f.Fuzz(func(t *testing.T, command string) {
		var p pipeline
		var err error
		if took := testkit.CPU(t, func() { p, err = a.check(command) }); took > 5*time.Second {
			t.Fatalf("%v for %d bytes", took, len(command))
		}
		if err != nil {
			return
		}
		script := p.String()
		segments, ok := tokens(script)
		if !ok || len(segments) != len(p) {
			t.Fatalf("%q was written back as %q", command, script)
		}
		for i, words := range segments {
			if !slices.Equal(words, p[i].words) {
				t.Fatalf("%q: checked %q, written back as %q", command, p[i].words, words)
			}
			if !slices.Contains([]string{"ls", "cat", "grep", "find", "echo"}, words[0]) {
				t.Fatalf("%q runs %q", command, words[0])
			}
			for _, word := range words[1:] {
				if filepath.IsAbs(word) || slices.Contains(strings.Split(word, "/"), "..") || strings.HasPrefix(word,
					"-exec") ||
					strings.ContainsRune(word, 0) {
					t.Fatalf("%q: the argument %q", command, word)
				}
			}
		}
		again, err := a.check(script)
		if err != nil || again.String() != script {
			t.Fatalf("%q: written back as %q, which is %q, %v", command, script, again, err)
		}
	})
}

// TestShellsRunWhatWasChecked runs commands by real shells, with programs in place of the allowed ones that note what
// they are called with: it is what was checked, word for word.
func TestShellsRunWhatWasChecked(t *testing.T) {
	dir := t.TempDir()
	note := "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" end >>\"$NOTES\"\n"
	for _, name := range []string{"ls", "cat", "note"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(note), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := allowlist{allow: []string{"ls", "cat", "note"}}
	for _, command := range []string{
		"ls; cat x", "ls 'a b' \"c\" d\\ e; note",
		"note '$x' '`id`' '*' '~' '!' '#' ';' '|' '&' '>' '<' '(' ')' '\\'; ls",
		"note 'it'\\''s' \"two\nlines\"; cat '' ''", "note -- -n -e '\\n' '\\c'; ls", "cat a && note b && ls c",
		"ls 'ｘ' '日本'\ncat '{a,b}' '$'\\''x'\\''' \"$\"", "note 'a\tb' '  '; ls '=x' 'A=b'",
	} {
		p, err := a.check(command)
		if err != nil {
			t.Errorf("%q: %v", command, err)
			continue
		}
		want := ""
		for _, s := range p {
			want += strings.Join(append(slices.Clone(s.words), "end"), "\x00") + "\x00"
		}
		for _, shell := range []*shell{execShell, bashShell} {
			notes := filepath.Join(t.TempDir(), "notes")
			args, _ := p.args(shell.args)
			cmd := exec.Command(args[0], args[1:]...)
			if args[0] == "bash" {
				cmd = exec.Command("/bin/bash", args[1:]...)
			}
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "NOTES=" + notes, "LANG=C.UTF-8"}
			out, err := cmd.CombinedOutput()
			got, _ := os.ReadFile(notes)
			if err != nil || string(got) != want || len(out) > 0 {
				t.Errorf("%s: %q ran %q, want %q; %v %s", shell.tool, command, got, want, err, out)
			}
		}
	}
}
