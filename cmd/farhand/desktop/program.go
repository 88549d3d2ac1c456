package desktop

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/farhand/farhand/internal/procgroup"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	programTime = 10 * time.Second // of a program that neither waits for a person nor records
	endWait     = time.Second      // for the output of a program that was killed
	maxOutput   = 1 << 20          // bytes of standard output by default
	maxError    = 500              // bytes of standard error in an error
)

// program is a program to run. It never goes through a shell.
type program struct {
	path  string // as found by look
	args  []string
	env   []string // beyond the desktop's
	stdin string
	limit int           // bytes of standard output; zero: maxOutput. More is an error
	time  time.Duration // after which it is killed; zero: programTime
	both  bool          // standard error is also output
}

// look returns the path of a program, or "" if this machine does not have it.
func (d *Desktop) look(name string) string {
	for _, dir := range filepath.SplitList(d.vars[d.variable("PATH")]) {
		if !filepath.IsAbs(dir) {
			continue // a folder that depends on where this program was started is no place for programs
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// variable returns how the environment spells a variable: on Windows in any case.
func (d *Desktop) variable(name string) string {
	if _, there := d.vars[name]; !there && d.system == "windows" {
		for spelled := range d.vars {
			if strings.EqualFold(spelled, name) {
				return spelled
			}
		}
	}
	return name
}

// first returns the first of some programs that this machine has.
func (d *Desktop) first(names ...string) (name, path string) {
	for _, name := range names {
		if path := d.look(name); path != "" {
			return name, path
		}
	}
	return "", ""
}

// errTooLong is the error of a program that prints more than is kept.
var errTooLong = errors.New("more output than the limit")

// run runs a program until it or ctx ends, and returns its standard output. Processes that it started end with it. Its
// failure is an error with the end of its standard error.
func (d *Desktop) run(ctx context.Context, p program) ([]byte, error) {
	name := filepath.Base(p.path)
	limit, longest := p.limit, p.time
	if limit == 0 {
		limit = maxOutput
	}
	if longest == 0 {
		longest = programTime
	}
	ctx, stop := context.WithTimeoutCause(ctx, longest, fmt.Errorf("%s took longer than %v", name, longest))
	defer stop()
	stdout, stderr := &bounded{limit: limit}, procgroup.NewTail(maxError)
	cmd := d.command(ctx, p)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if p.both {
		cmd.Stderr = stdout // one writer: os/exec then writes it in one goroutine
	}
	if p.stdin != "" {
		cmd.Stdin = strings.NewReader(p.stdin)
	}
	group, err := procgroup.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	err = group.Wait()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return nil, cause
	}
	if stdout.over {
		return stdout.Bytes(), fmt.Errorf("%s: %w of %d bytes", name, errTooLong, limit)
	}
	if err != nil {
		return stdout.Bytes(), fmt.Errorf("%s failed: %w%s", name, err, remark(stderr.String()))
	}
	return stdout.Bytes(), nil
}

func (d *Desktop) command(ctx context.Context, p program) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env, cmd.WaitDelay = append(d.environ[:len(d.environ):len(d.environ)], p.env...), endWait
	return cmd
}

// remark returns what a program printed as the end of an error.
func remark(text string) string {
	if text = strings.Join(strings.Fields(textsafe.Clean(text)), " "); text == "" {
		return ""
	}
	return ": " + text
}

// bounded keeps what is written to it up to a limit. The writer of more gets an error.
type bounded struct {
	bytes.Buffer
	limit int
	over  bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := min(b.limit-b.Len(), len(p))
	b.Buffer.Write(p[:room])
	if room < len(p) {
		b.over = true
		return room, errTooLong
	}
	return room, nil
}

// inFolder calls use with an empty folder that only this user can read, and removes it afterwards.
func inFolder(use func(dir string) error) error {
	dir, err := os.MkdirTemp("", "farhand-")
	if err != nil {
		return err
	}
	return errors.Join(use(dir), os.RemoveAll(dir))
}

// powershell is the one that Windows has. Only this version reaches the services of Windows without modules.
const powershell = "powershell.exe"

//go:embed scripts/*.ps1
var scripts embed.FS

// argumentsVariable is the name of the file with a script's arguments, in JSON. So no argument becomes a part of a
// script, none is too long, and none depends on the encoding of the console.
const argumentsVariable = "DESKTOP_ARGUMENTS"

// beginning reads the arguments and sets the encoding of the output. Errors end the script.
const beginning = `$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
[Console]::OutputEncoding = New-Object Text.UTF8Encoding $false
$a = Get-Content -Raw -Encoding UTF8 -LiteralPath $env:` + argumentsVariable + ` | ConvertFrom-Json
`

// powershell runs a script of the folder scripts, and returns what it prints.
func (d *Desktop) powershell(ctx context.Context, script string, args any) ([]byte, error) {
	return d.powershellFor(ctx, startTime, script, args)
}

// powershellFor is powershell for a script that may take longer.
func (d *Desktop) powershellFor(
	ctx context.Context, time time.Duration, script string, args any,
) (out []byte, err error) {
	text, err := scripts.ReadFile("scripts/" + script + ".ps1")
	if err != nil {
		return nil, err
	}
	arguments, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	err = inFolder(func(dir string) error {
		file := filepath.Join(dir, "arguments.json")
		if err := os.WriteFile(file, arguments, 0o600); err != nil {
			return err
		}
		out, err = d.run(ctx, program{
			path: d.look(powershell), time: time, env: []string{argumentsVariable + "=" + file},
			args: []string{
				"-NoProfile", "-NonInteractive", "-STA", "-ExecutionPolicy", "Bypass", "-EncodedCommand",
				encodeScript(beginning + string(text)),
			},
		})
		if err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		return nil
	})
	return bytes.TrimPrefix(out, []byte("\ufeff")), err
}

// encodeScript returns a script as -EncodedCommand takes it: UTF-16, little endian, in base64.
func encodeScript(text string) string {
	return base64.StdEncoding.EncodeToString(littleEndian(text))
}

// littleEndian returns a text in UTF-16, little endian.
func littleEndian(text string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return b
}
