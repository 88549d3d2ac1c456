package shell_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/tools/shell"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// allowedPrograms is a generous list: also with programs that must not be allowed by their names.
var allowedPrograms = strings.Fields("ls cat grep find echo date head tail wc pwd true sort tar printf test cp rg " +
	"env xargs sh bash zsh busybox python3 python3.12 awk sed vi vim.tiny less git nohup sudo eval exec source . " +
	"command builtin /bin/ls ./echo read wait split file zip ln")

// bypasses are commands that must not run. The marker is what would be seen if they did.
var bypasses = map[string]string{
	// of the reports that this list begins with
	"a shell by its path":      `/bin/zsh -c 'touch pwned'`,
	"a shell by its name":      `zsh -c 'touch pwned'`,
	"a pipe to a shell":        `echo 'touch pwned' | sh`,
	"a pipe to any program":    `ls | tee pwned`,
	"env runs a shell":         `env sh -c 'touch pwned'`,
	"sort writes":              `sort -o pwned /dev/null`,
	"sort writes, in one":      `sort -opwned f`,
	"sort writes, in a bundle": `sort -uo pwned f`,
	"sort writes, abbreviated": `sort --out pwned f`,
	"sort runs":                `sort --compress-program=./evil f`,
	"grep leaves":              `grep -R root /etc`,
	"grep leaves by links":     `grep -R x .`,
	"grep leaves in a bundle":  `grep -inR x .`,
	"another echo":             `./echo touch pwned`,
	"another ls":               `/tmp/ls`,

	// more than one command
	"newline":           "ls\ntouch pwned",
	"semicolon":         "ls; touch pwned",
	"and":               "ls && touch pwned",
	"or":                "ls nothing || touch pwned",
	"background":        "ls & touch pwned",
	"pipe":              "ls | touch pwned",
	"pipe of errors":    "ls |& touch pwned",
	"first of them":     "touch pwned; ls",
	"carriage return":   "ls\rtouch pwned",
	"line continuation": "to\\\nuch pwned",
	"comment":           "ls # harmless\ntouch pwned",
	"vertical tab":      "ls\vtouch pwned",
	"line separator":    "ls\u2028touch pwned",
	"case":              "case x in x) touch pwned;; esac",
	"if":                "if true; then touch pwned; fi",
	"if of allowed":     "if true; then ls; fi",
	"for":               "for i in x; do touch pwned; done",
	"while":             "while true; do touch pwned; done",
	"function":          "ls() { touch pwned; }; ls",
	"subshell":          "(touch pwned)",
	"subshell, allowed": "(ls)",
	"block":             "{ touch pwned; }",
	"negation":          "! touch pwned",
	"coprocess":         "coproc touch pwned",
	"time":              "time touch pwned",

	// substitution
	"dollar brackets":       "echo $(touch pwned)",
	"quoted":                `echo "$(touch pwned)"`,
	"backticks":             "echo `touch pwned`",
	"backticks, quoted":     "echo \"`touch pwned`\"",
	"nested":                "echo ${x:-$(touch pwned)}",
	"arithmetic":            "echo $((a[$(touch pwned)]))",
	"old arithmetic":        "echo $[$(touch pwned)]",
	"process substitution":  "cat <(touch pwned)",
	"output substitution":   "ls >(touch pwned)",
	"variable":              "a=touch; $a pwned",
	"variable, one line":    "a=ls; $a",
	"variable as name":      "$SHELL -c 'touch pwned'",
	"IFS":                   "ls${IFS}-la",
	"IFS between":           "touch${IFS}pwned",
	"part of a name":        "l$@s",
	"ANSI quoting":          `$'touch' pwned`,
	"translated quoting":    `$"touch" pwned`,
	"home":                  "cat ~/.ssh/id_rsa",
	"home of another":       "cat ~root/.ssh/id_rsa",
	"braces":                "{touch,pwned}",
	"braces in an argument": "echo {1..1000000000}",
	"glob":                  "cat /et*/passwd",
	"glob as a name":        "/bin/l?",
	"glob of options":       "find *",
	"set":                   "cat [a-z]",
	"extended glob":         "ls @(a|b)",

	// redirection and assignment
	"output":          "echo x > pwned",
	"appended":        "echo x >> pwned",
	"without a space": "echo x>pwned",
	"clobbering":      "echo x >| pwned",
	"both outputs":    "ls &> pwned",
	"error output":    "ls 2> pwned",
	"descriptor":      "echo x 3<> pwned",
	"input":           "cat < /etc/passwd",
	"here-document":   "sh <<EOF\ntouch pwned\nEOF",
	"here-doc to cat": "cat <<EOF\n$(touch pwned)\nEOF",
	"here-string":     "cat <<< $(touch pwned)",
	"only output":     "> pwned",
	"network":         "echo x > /dev/tcp/127.0.0.1/1",
	"LD_PRELOAD":      "LD_PRELOAD=./evil.so ls",
	"BASH_ENV":        "BASH_ENV=./evil ls",
	"PATH":            "PATH=. ls",
	"IFS, assigned":   "IFS=x ls",
	"only assigned":   "A=x",
	"exported":        "export PATH=.; ls",
	"array":           "a=(touch pwned)",

	// words of shells and programs that run others
	"eval":            "eval touch pwned",
	"exec":            "exec touch pwned",
	"source":          "source ./evil",
	"dot":             ". ./evil",
	"command":         "command touch pwned",
	"builtin":         "builtin eval touch pwned",
	"wait":            "wait -p 'a[$(touch pwned)]'",
	"read":            "read 'a[$(touch pwned)]'",
	"alias":           "alias ls='touch pwned'\nls",
	"trap":            "trap 'touch pwned' EXIT",
	"env":             "env touch pwned",
	"env -S":          "env -S 'touch pwned'",
	"env -i":          "env -i touch pwned",
	"xargs":           "echo pwned | xargs touch",
	"nohup":           "nohup touch pwned",
	"sudo":            "sudo touch pwned",
	"busybox":         "busybox touch pwned",
	"busybox sh":      "busybox sh -c 'touch pwned'",
	"python":          `python3 -c 'open("pwned","w")'`,
	"python, version": `python3.12 -c 'open("pwned","w")'`,
	"awk":             `awk 'BEGIN{system("touch pwned")}'`,
	"sed e":           "sed '1e touch pwned' f",
	"sed w":           "sed 'w pwned' f",
	"sed -i":          "sed -i s/a/b/ f",
	"vi":              "vi -c ':!touch pwned' -c q",
	"vim, version":    "vim.tiny -c ':!touch pwned' -c q",
	"less":            "less f",
	"git -c":          "git -c core.pager='touch pwned' log",
	"git":             "git status",
	"not listed":      "touch pwned",
	"case of letters": "LS",
	"look-alike":      "\u217cs",
	"Cyrillic":        "\u0441at f",
	"full width":      "ｌｓ",
	"hidden":          "l\u200bs",
	"backspace":       "touch\b\b\b\b\bls pwned",
	"empty name":      "'' ls",
	"quoted name":     `"touch" pwned`,
	"name in parts":   `to'uch' pwned`,
	"history":         "!touch",
	"brackets":        `printf -v 'a[$(touch pwned)]' x`,
	"test":            `test -v 'a[$(touch pwned)]'; true`,

	// arguments
	"find -exec":           `find . -exec touch pwned ';'`,
	"find -exec, escaped":  `find . -exec touch pwned \;`,
	"find -execdir":        `find . -execdir touch pwned ';'`,
	"find -ok":             `find . -ok touch pwned ';'`,
	"find -delete":         "find . -delete",
	"find -fprint":         "find . -fprint pwned",
	"find -fprintf":        "find . -fprintf pwned x",
	"find -fls":            "find . -fls pwned",
	"find, quoted":         `find . '-ex'ec touch pwned ';'`,
	"find, escaped":        `find . -ex\ec touch pwned ';'`,
	"find follows":         "find -L .",
	"find names":           "find -files0-from names",
	"tar, checkpoint":      "tar cf x f --checkpoint=1 --checkpoint-action=exec=./evil",
	"tar, abbreviated":     "tar cf x f --checkpoint-act exec=./evil",
	"tar -I":               "tar -I ./evil -cf x f",
	"tar, bundle":          "tar cIf ./evil x f",
	"tar to a command":     "tar xf x --to-command=./evil",
	"tar names":            "tar cf x -T names",
	"tar of another host":  "tar cf host:x f",
	"wc names":             "wc --files0-from=names",
	"sort names":           "sort --files0-from=names",
	"split filter":         "split --filter='touch pwned' f",
	"rg pre":               "rg --pre ./evil x",
	"zip test":             "zip x f -T -TT 'touch pwned #'",
	"file names":           "file -f names",
	"file unpacks":         "file -z a.xz",
	"file unpacks quietly": "file -Zb a.xz",
	"file, long":           "file --uncompress-noreport a.xz",
	"date sets":            "date -s yesterday",
	"absolute":             "cat /etc/passwd",
	"absolute, quoted":     `cat '/etc/passwd'`,
	"absolute, escaped":    `cat \/etc/passwd`,
	"absolute, in parts":   `cat ""/etc/passwd`,
	"upwards":              "cat ../secret",
	"upwards, inside":      "cat a/../../secret",
	"upwards, bare":        "ls ..",
	"upwards, escaped":     `cat .\./secret`,
	"behind an option":     "grep -f/etc/passwd x",
	"behind a bundle":      "grep -rf/etc/passwd x",
	"behind a long option": "grep --file=/etc/passwd x",
	"upwards, option":      "grep -f../secret x",
	"upwards, long option": "grep --file=../secret x",
	"in a list":            "cp --x=a:/etc/passwd y",
	"by URL":               "cat file:///etc/passwd",
	"link":                 "ln -s /etc/passwd x",
	"root":                 "ls /",
	"proc":                 "cat /proc/self/environ",

	// what the parser cannot stand
	"open quote":      "echo 'x",
	"open brackets":   "echo $((",
	"only operators":  "&& ls",
	"nothing":         "# only a comment",
	"deep":            strings.Repeat("(", 3000),
	"deep arithmetic": "echo " + strings.Repeat("$((", 3000),
	"deep quotes":     strings.Repeat("\"$(", 3000),
	"backslash":       "ls \\",
	"many programs":   strings.Repeat("ls;", 200),
	"many words":      "echo" + strings.Repeat(" x", 3000),
	"long":            "echo " + strings.Repeat("x", 20_000),
}

// newListed is a bench in mode allowlist.
func newListed(t testing.TB, allow ...string) *bench {
	t.Helper()
	b := newBench(t)
	b.decision.Programs = policy.Programs{Security: policy.Allowlist, Allow: allow}
	for name, text := range map[string]string{"f": "line\n", "evil": "#!/bin/sh\ntouch pwned\n",
		"names": "/etc/passwd\x00",
		"-exec": "", "-delete": ""} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestBypasses(t *testing.T) {
	b := newListed(t, allowedPrograms...)
	for name, command := range bypasses {
		for _, tool := range []string{"exec", "bash"} {
			var res registry.Result
			var err error
			took := testkit.CPU(t, func() { res, err = b.try(t.Context(), tool, object{"command": command}) })
			if e := registry.AsError(err); e.Code != registry.CodePolicyDenied || e.Message == "" ||
				e.Dispatched != registry.DispatchedNo || len(e.Message) > 1200 {
				t.Errorf("%s: %s: %.100q: %+v, %v", name, tool, command, res, err)
			}
			if took > 5*time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
		}
	}
	if _, err := b.try(t.Context(), "exec", object{"command": "ls\x00touch pwned"}); err == nil {
		t.Error("NUL")
	}
	if _, err := os.Stat(filepath.Join(b.dir, "pwned")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something ran: %v", err)
	}
}

// In a sandbox files outside of the workspace are the container's.
func TestArgumentsInTheSandbox(t *testing.T) {
	b := newListed(t, "cat", "find")
	engine := &fakeEngine{name: "docker"}
	b.cfg.Sandbox, b.sc.Sandboxed = engine, true
	if res := b.run("exec", object{"command": "cat /etc/hostname ../x"}); !res.Success {
		t.Errorf("%+v", res)
	}
	for _, command := range []string{"find / -delete", "cat $(id)", "ls", "cat > x"} {
		if _, err := b.try(t.Context(), "exec", object{"command": command}); !errors.Is(err,
			registry.CodePolicyDenied) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if len(engine.got) != 1 || !slices.Equal(engine.got[0].Args, []string{"cat", "/etc/hostname", "../x"}) {
		t.Errorf("%+v", engine.got)
	}
}

// What is allowed runs, and means what it meant to whoever wrote it.
func TestAllowedCommands(t *testing.T) {
	b := newListed(t, allowedPrograms...)
	for command, want := range map[string]string{
		"echo hello":                         "hello\n",
		"  echo\thello  ":                    "hello\n",
		"echo one; echo two":                 "one\ntwo\n",
		"echo one\necho two\n":               "one\ntwo\n",
		"echo b a | sort | cat":              "b a\n",
		"true && echo yes || echo no":        "yes\n",
		"test x = y && echo yes || echo no":  "no\n",
		"echo one | cat && echo two | cat":   "one\ntwo\n",
		"echo a & cat f":                     "*",
		"echo hello # said":                  "hello\n",
		"ec\\\nho hello":                     "hello\n",
		`e\cho 'a  b' "c  d" e\ f`:           "a  b c  d e f\n",
		`echo 'it'\''s' "a \"b\" \\ \$HOME"`: "it's a \"b\" \\ $HOME\n",
		`echo '$HOME' '*' '~' '{a,b}' '!x'`:  "$HOME * ~ {a,b} !x\n",
		`echo "*" "~" "a;b" "a|b"`:           "* ~ a;b a|b\n",
		"grep -n line f":                     "1:line\n",
		`grep "line$" f`:                     "line\n",
		"find . -name 'f' -type f":           "./f\n",
		"wc -l f":                            "1 f\n",
		"head -n 1 f | wc -c":                "5\n",
		"echo a...b -- --x=y a/b.c":          "a...b -- --x=y a/b.c\n",
		"echo 'two\nlines'":                  "two\nlines\n",
		"printf '%s-' a 'b c'":               "a-b c-",
		"'echo' quoted":                      "quoted\n",
		"echo if then 'fi'; echo done":       "if then fi\ndone\n",
		"echo日本 ":                            "",
	} {
		for _, tool := range []string{"exec", "bash"} {
			if want == "" {
				if _, err := b.try(t.Context(), tool, object{"command": command}); !errors.Is(err,
					registry.CodePolicyDenied) {
					t.Errorf("%s %q: %v", tool, command, err)
				}
				continue
			}
			if res := b.run(tool, object{"command": command}); !res.Success || res.Output != want && want != "*" {
				t.Errorf("%s %q: %+v", tool, command, res)
			}
		}
	}
}

// An entry may name first arguments. They may be anything; what follows them may not.
func TestEntriesWithArguments(t *testing.T) {
	b := newListed(t, "git status", "sed --sandbox", "find . -delete", "cat /etc/hostname", "python3 -m json.tool",
		"sort")
	engine := &fakeEngine{name: "host"}
	b.cfg.Host = engine
	for command, runs := range map[string]bool{
		"git status": true, "git status --short": true, "git": false, "git log": false, "git -c a=b status": false,
		"git status -c x": false, "git 'status'": true, "sed --sandbox s/a/b/ f": true, "sed s/a/b/ f": false,
		"sed -i --sandbox": false, "find . -delete": true, "find . -exec x": false, "cat /etc/hostname": true,
		"cat /etc/hostname /etc/passwd": false, "cat f": false, "python3 -m json.tool f": true, "python3 -c x": false,
		"sort f": true, "gitstatus": false, "'git status'": false,
	} {
		_, err := b.try(t.Context(), "exec", object{"command": command})
		if runs != (err == nil) || err != nil && !errors.Is(err, registry.CodePolicyDenied) {
			t.Errorf("%s: %v", command, err)
		}
	}
	for name, says := range map[string]string{"python3 x": "not with these arguments",
		"touch x": "Allowed are: git status"} {
		if _, err := b.try(t.Context(), "exec",
			object{"command": name}); !strings.Contains(registry.AsError(err).Message, says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.decision.Programs.Allow = []string{"bash"}
	if _, err := b.try(t.Context(), "exec", object{"command": "bash x"}); !strings.Contains(
		registry.AsError(err).Message, "by name alone") {
		t.Errorf("%v", err)
	}
}

// Programs that have a language of their own, write by options, or take a list of files from a file, are held by the
// entry that allows them, and a path inside an argument is found.
func TestProgramsThatReachFurther(t *testing.T) {
	b := newListed(t, "jq", "jq -r", "tar", "tar -cf", "rsync", "zip", "zip -r", "uniq", "xxd", "shuf", "iconv",
		"install", "sha256sum", "fd", "tree", "zless", "ip", "note", "grep", "cat", "find", "sort")
	b.cfg.Host = &fakeEngine{name: "host"}
	for command, runs := range map[string]bool{
		`jq . f`: false, `jq -r .a/.b f`: true, `jq -r '.. | .a?' f`: true, `jq -r '.a / 2' f`: true,
		`jq -r 'import "passwd" as $d {search: "/etc"}; $d' f`: false,
		`jq -r 'include "x" {search:"../.."}; .' f`:            false,
		`jq -r '[inputs]' -L/etc f`:                            false,

		`tar -cf x f`: true, `tar cf x f`: false, `tar -cf x f --remove-files`: false,
		`tar -cf x --remove f`: false, `tar -cf x f --index-file=y`: false, `tar -cf x f --volno-file=y`: false,
		`tar -cf x -g y f`: false, `tar -cf x --listed=y f`: false, `tar -cf x -h f`: false,
		`tar -cf x f --mtime=/etc/passwd`: false, `zip x f`: false, `zip -r x f`: true, `zip -r x f -m`: false,
		`zip -r x -@ f`: false, `zip -r x -i@names .`: false, `rsync f g`: false,

		`uniq f`: true, `uniq -c f`: true, `uniq f out`: false, `uniq -- f out`: false, `xxd f`: true,
		`xxd -r f out`: false, `shuf f`: true, `shuf -o out f`: false, `shuf --out=x f`: false, `iconv -o out f`: false,
		`install -s --strip-program=./evil f g`: false, `sha256sum f`: true, `sha256sum -c names`: false,
		`sha256sum --check names`: false, `fd x`: true, `fd x -x touch`: false, `fd x --exec-batch rm`: false,
		`tree`: true, `tree -R -H . -L 1`: false, `zless f`: false, `ip netns exec x sh`: false, `find -H .`: false,

		`note 'read("/etc/passwd")'`: false, `note '{"file":"../x"}'`: false, `note "a '/etc'"`: false,
		`note 'x y:/etc'`: false, `note 'cat /etc/passwd'`: false, `note '\/etc'`: false, `note a/b s/a/b/ 1/2`: true,
		`note '".."'`: false, `note '{..}'`: false, `note '[/]x' 'a...b'`: true,
		`grep 'GET /x' f`: true, `grep '"/x"' f`: true, `cat a/b`: true,
	} {
		_, err := b.try(t.Context(), "exec", object{"command": command})
		if runs != (err == nil) || err != nil && !errors.Is(err, registry.CodePolicyDenied) {
			t.Errorf("%s: %v", command, err)
		}
	}
	b.cfg.Sandbox, b.sc.Sandboxed = &fakeEngine{name: "docker"}, true
	if res := b.run("exec", object{"command": "jq . /etc/hostname"}); !res.Success {
		t.Errorf("in the sandbox: %+v", res)
	}
}

// Each program of the default list, and each that the gateway knows something about, has a row in the documentation.
func TestEachProgramIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../../access/policy/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(rules), "allow: [")
	list, _, _ = strings.Cut(list, "]")
	separates := func(r rune) bool { return strings.ContainsRune(`, "`, r) }
	names := append(shell.Known(), strings.FieldsFunc(list, separates)...)
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/tools.md does not say what %s can do", name)
		}
	}
	if len(names) < 20 {
		t.Errorf("only %q are known", names)
	}
}
