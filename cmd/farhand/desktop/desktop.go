// Package desktop implements the tools of `farhand device --desktop`: what a person's computer can do, by the programs
// and services of its system. Their names, parameters and results are those of the device page (docs/devices.md). A
// tool is offered only if this machine has what it needs; otherwise Offers says what is missing. Start reading at
// Offers in tools.go.
//
// The system is a value, not a build constraint: all three are compiled everywhere, and tests on one can run the
// commands of the others.
package desktop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/cmd/farhand/nodetools"
)

// Config is what the owner of a machine decides.
type Config struct {
	System  string   // as runtime.GOOS names it, which is the default
	Environ []string // of this program. The programs it starts get it without the variables of Farhand

	// Confirm is how the person here is asked. Default: ByTerminal if there is a Terminal, else ByNotification if
	// questions can be shown, else ByPolicy.
	Confirm  Confirm
	Terminal Ask // asks at the terminal; nil without one

	Allow    []string // names of tools that run without a question
	Commands []string // what the tool run may run without a question, such as "uptime" or "df *"

	Folder     string // that the file tools share; empty: none
	Camera     string // FORMAT:INPUT of ffmpeg; empty: the cameras that the system knows
	Microphone string // FORMAT:INPUT of ffmpeg; empty: the system's default

	Location *nodetools.Location // fixed; nil: where the system says
	Canvas   *nodetools.Canvas   // shown in the browser; nil: none is offered
}

// Desktop is this machine. Its methods are safe for concurrent use.
type Desktop struct {
	cfg     Config
	system  string
	environ []string // of programs
	vars    map[string]string
	ask     Ask // nil: questions cannot be asked

	windowed bool // ask shows a window or a notification, which cut long texts

	allowed allowed
	rules   []rule
	folder  *os.Root // nil: none
	copied  clipboardOwner
	opened  launches

	camera, microphone, speaker turn
}

// New returns this machine. Close must be called. It fails if a part of the configuration cannot be used.
func New(ctx context.Context, cfg Config) (*Desktop, error) {
	d := newDesktop(cfg)
	for _, name := range cfg.Allow {
		if !slices.ContainsFunc(specs(), func(s spec) bool { return s.name == name }) {
			return nil, fmt.Errorf("--allow %s: there is no such tool", name)
		}
		d.allowed.tools[name] = true
	}
	for _, text := range cfg.Commands {
		r, err := parseRule(text)
		if err != nil {
			return nil, fmt.Errorf("--allow-run %q: %w", text, err)
		}
		d.rules = append(d.rules, r)
	}
	for name, text := range map[string]string{"--camera": cfg.Camera, "--microphone": cfg.Microphone} {
		if _, ok := parseInput(text); text != "" && !ok {
			return nil, fmt.Errorf("%s %q must look like FORMAT:INPUT, which ffmpeg takes after -f and -i", name,
				text)
		}
	}
	if err := d.chooseAsk(ctx); err != nil {
		return nil, err
	}
	if cfg.Folder != "" {
		var err error
		if d.folder, err = os.OpenRoot(cfg.Folder); err != nil {
			return nil, fmt.Errorf("--files: %w", err)
		}
	}
	if cfg.Canvas != nil {
		cfg.Canvas.AskWith(d.permitShown)
	}
	return d, nil
}

func newDesktop(cfg Config) *Desktop {
	d := &Desktop{
		cfg: cfg, system: cmp.Or(cfg.System, runtime.GOOS), vars: env.ToMap(cfg.Environ),
		allowed: allowed{tools: make(map[string]bool)}, opened: launches{make(chan struct{}, maxOpened)},
		camera: newTurn(), microphone: newTurn(), speaker: newTurn(),
	}
	d.environ = slices.DeleteFunc(slices.Clone(cfg.Environ), func(kv string) bool {
		return strings.HasPrefix(kv, "FARHAND_")
	})
	return d
}

// Close gives up the clipboard. Pages that open_url opened stay open.
func (d *Desktop) Close() error {
	d.copied.release()
	if d.folder != nil {
		return d.folder.Close()
	}
	return nil
}

// turn is held by one user of a thing that cannot be used twice at a time, such as a camera.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. release must be called if there is no error.
func (t turn) take(ctx context.Context) (release func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// allowed has the tools that run without a question.
type allowed struct {
	mu    sync.Mutex
	tools map[string]bool
}

func (a *allowed) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tools[name]
}

func (a *allowed) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tools[name] = true
}

// Errors of calls that are not allowed here.
var (
	errRefused    = errors.New("the person at this machine did not allow this")
	errUnanswered = errors.New("the person at this machine could not be asked")
)

// permit returns nil if the policy or the person here allows what a tool is about to do. lasting also offers to allow
// the tool until this program ends.
func (d *Desktop) permit(ctx context.Context, tool, question string, lasting bool) error {
	if d.allowed.has(tool) {
		return nil
	}
	if d.ask == nil {
		return fmt.Errorf("%w: %s needs a question, and this machine asks none. Its owner can allow the tool with "+
			"--allow", errRefused, tool)
	}
	if d.windowed && !fits(question) {
		return fmt.Errorf("%w: the question has more than %d characters, and a part of it would not be seen",
			errUnanswered, maxQuestion)
	}
	switch d.ask(ctx, Question{Text: question, Lasting: lasting}) {
	case Always:
		if lasting {
			d.allowed.add(tool)
		}
		return nil
	case Once:
		return nil
	case No:
		return errRefused
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("the person at this machine did not answer: %w", err)
	}
	return errUnanswered
}
