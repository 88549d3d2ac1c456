package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	maxChecked  = 16 << 10 // maximum length of a command that is parsed, in bytes
	maxOpeners  = 200      // maximum number of its characters that can open a nested construct
	maxCommands = 100
	maxWords    = 2000
)

// allowlist is the rules of mode allowlist.
type allowlist struct {
	allow  []string // programs, each with its required first arguments
	inside bool     // reject arguments that may name files outside of the workspace
}

// segment is one program of a command, and the operator after it.
type segment struct {
	words []string
	then  string // " | ", " && ", " || ", " &\n" or "\n"
}

// pipeline is a checked command: programs with literal arguments, in order.
type pipeline []segment

// args returns the arguments for the engine. A single program runs directly. Several programs run in a shell, with a
// command that is rebuilt from the checked words.
func (p pipeline) args(shell []string) (args []string, viaShell bool) {
	if len(p) == 1 {
		return p[0].words, false
	}
	return append(append([]string{}, shell...), p.String()), true
}

// String returns the command with every word quoted, so that a shell expands nothing and treats no word as a keyword.
func (p pipeline) String() string {
	var b strings.Builder
	for i, s := range p {
		for j, word := range s.words {
			if j > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(quoted(word))
		}
		if i < len(p)-1 || s.then == background {
			b.WriteString(s.then)
		}
	}
	return b.String()
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

const (
	background = " &\n"
	newline    = "\n"
)

// check parses a command and returns it if all of it is allowed. The error names what is not allowed.
func (a allowlist) check(command string) (p pipeline, err error) {
	if err := precheck(command); err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // reject commands that make the parser panic
			p, err = nil, forbidden("The command cannot be parsed. Simplify it.")
		}
	}()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(command), "")
	if err != nil {
		return nil, forbidden("The command is not valid POSIX shell: %s", textsafe.Line(err.Error()))
	}
	for _, stmt := range file.Stmts {
		if p, err = a.statement(p, stmt, newline); err != nil {
			return nil, err
		}
	}
	if len(p) == 0 {
		return nil, forbidden("The command runs no program.")
	}
	return p, nil
}

// precheck rejects commands that are too long or too nested to parse, or that contain invisible characters.
func precheck(command string) error {
	if len(command) > maxChecked {
		return forbidden("The command has %d bytes; mode allowlist allows at most %d.", len(command),
			maxChecked)
	}
	hidden := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
	if strings.ContainsFunc(command, hidden) || textsafe.Hides(command) {
		return forbidden("The command has invisible characters, such as controls. Remove them.")
	}
	openers := 0
	for i := range len(command) {
		if strings.IndexByte("({[`$<", command[i]) >= 0 {
			openers++
		}
	}
	if openers > maxOpeners {
		return forbidden("The command has too many brackets and substitutions.")
	}
	return nil
}

// statement appends the programs of a statement. then is the operator after it.
func (a allowlist) statement(p pipeline, s *syntax.Stmt, then string) (pipeline, error) {
	if s.Background {
		then = background
	}
	switch {
	case len(s.Redirs) > 0:
		return nil, forbidden("Redirections and here-documents are not allowed in mode allowlist. " +
			"Write files with the tool write.")
	case s.Negated, s.Coprocess, s.Disown:
		return nil, unsupported("!")
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return a.program(p, cmd, then)
	case *syntax.BinaryCmd:
		operator, ok := operators[cmd.Op]
		if !ok {
			return nil, unsupported(cmd.Op.String())
		}
		p, err := a.statement(p, cmd.X, operator)
		if err != nil {
			return nil, err
		}
		return a.statement(p, cmd.Y, then)
	case nil:
		return nil, unsupported("an empty statement")
	default:
		return nil, unsupported(construct(cmd))
	}
}

var operators = map[syntax.BinCmdOperator]string{
	syntax.AndStmt: " && ", syntax.OrStmt: " || ", syntax.Pipe: " | ",
}

// unsupported returns the error for an unsupported shell construct.
func unsupported(what string) error {
	return forbidden("In mode allowlist, commands are programs with plain arguments, joined by |, &&, || and ;. "+
		"Not allowed: %s.", what)
}

// construct returns the name of a shell construct.
func construct(cmd syntax.Command) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", cmd), "*syntax.")
	return strings.ToLower(strings.TrimSuffix(name, "Clause"))
}

// program appends one program with its arguments.
func (a allowlist) program(p pipeline, call *syntax.CallExpr, then string) (pipeline, error) {
	if len(call.Assigns) > 0 {
		return nil, forbidden("Variable assignments are not allowed in mode allowlist. Use env, if it is allowed.")
	}
	words := make([]string, 0, len(call.Args))
	for _, w := range call.Args {
		word, err := literal(w)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	count := len(words)
	for _, s := range p {
		count += len(s.words)
	}
	if len(p) == maxCommands || count > maxWords {
		return nil, forbidden("The command has too many programs or words; at most %d and %d.", maxCommands, maxWords)
	}
	if err := a.allows(words); err != nil {
		return nil, err
	}
	return append(p, segment{words, then}), nil
}

// literal returns the value of a word. It rejects words that a shell would expand, because their value is only known at
// run time.
func literal(w *syntax.Word) (string, error) {
	var b strings.Builder
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if err := bare(&b, part.Value, i == 0); err != nil {
				return "", err
			}
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", expands("$'…'")
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			if err := doubleQuoted(&b, part); err != nil {
				return "", err
			}
		default:
			return "", substitutes()
		}
	}
	return b.String(), nil
}

func substitutes() error {
	return forbidden("Variables and substitutions are not allowed in mode allowlist. Write their value, " +
		"or put literal text in single quotes.")
}

func expands(what string) error {
	return forbidden("%s is not allowed in mode allowlist, because a shell expands it. Put literal text in single "+
		"quotes, or name the files.", what)
}

// bare appends the value of an unquoted part of a word. first is true at the start of the word.
func bare(b *strings.Builder, text string, first bool) error {
	if first && strings.HasPrefix(text, "~") {
		return expands("~")
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			i++
			switch {
			case i == len(text):
				return expands(`A single \ at the end`)
			case text[i] != '\n': // an escaped newline joins two lines
				b.WriteByte(text[i])
			}
		case '*', '?', '[', '{', '~':
			if c == '~' && i > 0 && text[i-1] != ':' && text[i-1] != '=' {
				b.WriteByte(c)
				continue
			}
			return expands(string(c))
		case '$', '`':
			return substitutes()
		default:
			b.WriteByte(c)
		}
	}
	return nil
}

// doubleQuoted appends the value of a double-quoted part of a word.
func doubleQuoted(b *strings.Builder, q *syntax.DblQuoted) error {
	if q.Dollar {
		return expands(`$"…"`)
	}
	for _, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return substitutes()
		}
		text := lit.Value
		for i := 0; i < len(text); i++ {
			if text[i] == '\\' && i+1 < len(text) {
				switch text[i+1] {
				case '$', '`', '"', '\\':
					i++
				case '\n':
					i++
					continue
				}
			}
			b.WriteByte(text[i])
		}
	}
	return nil
}

// arguments are the arguments of a call.
type arguments struct {
	Command  string            `json:"command"`
	Timeout  float64           `json:"timeout"` // seconds; the schema requires an integer
	Workdir  string            `json:"workdir"`
	Env      map[string]string `json:"env"`
	Elevated bool              `json:"elevated"`
	Security policy.Security   `json:"security"`
}

// timeout returns the timeout of the command: defaultTimeout if unset, at most maxTimeout.
func (a *arguments) timeout() time.Duration {
	if a.Timeout <= 0 || math.IsNaN(a.Timeout) {
		return defaultTimeout
	}
	return time.Duration(min(a.Timeout, maxTimeout.Seconds()) * float64(time.Second))
}

// plan is a call that passed all checks.
type plan struct {
	engine  sandbox.Engine
	command sandbox.Command
	timeout time.Duration
	program string // looked up by the engine
	viaBash bool   // program is the tool's shell
}

// Validate implements agent.ArgsValidator. Forbidden calls are rejected before anyone is asked for approval.
func (r runner) Validate(ctx context.Context, args json.RawMessage) error {
	_, err := r.plan(ctx, args)
	return err
}

// NeedsApproval implements agent.ApprovalChecker.
func (r runner) NeedsApproval(args json.RawMessage) (reason string, needed bool) {
	var in arguments
	if err := json.Unmarshal(args, &in); err != nil || !in.Elevated {
		return "", false
	}
	return "the command runs as the gateway's own user", true
}

// forbidden returns the error for a call that policy denies.
func forbidden(format string, args ...any) error {
	return registry.Errorf(registry.CodePolicyDenied, format, args...).With(registry.DispatchedNo)
}

// plan checks a call against policy and validates its arguments.
func (r runner) plan(ctx context.Context, args json.RawMessage) (*plan, error) {
	var in arguments
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	programs := policy.DecisionOf(ctx).Programs
	mode := policy.Stricter(cmp.Or(programs.Security, policy.Allowlist), in.Security)
	engine, sandboxed := r.engine(programs)
	workdir, err := checkWorkdir(in.Workdir)
	switch {
	case mode == policy.Deny:
		return nil, forbidden("The security mode of this call is deny, so no command may run.")
	case engine == nil:
		return nil, registry.Errorf(registry.CodeToolNotFound, "Programs cannot run here: %s", r.missing(sandboxed)).
			With(registry.DispatchedNo)
	case strings.TrimSpace(in.Command) == "":
		return nil, errors.New("the command is empty")
	case len(in.Command) > maxCommand || strings.ContainsRune(in.Command, 0):
		return nil, errors.New("the command is too long, or has a NUL character; write it to a file and run that file")
	case err != nil:
		return nil, err
	case in.Elevated && sandboxed:
		return nil, forbidden("The sandbox has no elevated permissions. Omit elevated.")
	case in.Elevated && !programs.Elevated:
		return nil, forbidden("Policy does not allow elevated permissions for this call. Omit elevated.")
	}
	p := &plan{engine: engine, timeout: in.timeout()}
	p.command = sandbox.Command{Dir: workdir, Elevated: in.Elevated, Limits: r.cfg.Limits}
	full := mode == policy.Full
	if p.command.Env, err = r.variables(in.Env, full); err != nil {
		return nil, err
	}
	p.command.Args, p.viaBash = append(slices.Clone(r.shell.args), in.Command), true
	if !full {
		a := allowlist{allow: programs.Allow, inside: !sandboxed}
		pipeline, err := a.check(in.Command)
		if err != nil {
			return nil, err
		}
		p.command.Args, p.viaBash = pipeline.args(r.shell.args)
	}
	p.program = p.command.Args[0]
	return p, nil
}

// checkWorkdir returns the working directory of a command, relative to the workspace. Whether it exists and stays
// inside the workspace is only checked when the command runs.
func checkWorkdir(dir string) (string, error) {
	switch {
	case dir == "":
		return "", nil
	case strings.ContainsFunc(dir, unicode.IsControl), strings.Contains(dir, `\`):
		return "", errors.New("workdir: give a plain path relative to the workspace, such as src")
	case dir[0] == '/', dir[0] == '~', slices.Contains(strings.Split(dir, "/"), ".."):
		return "", errors.New("workdir: give a folder relative to the workspace and inside it, such as src")
	}
	if dir = path.Clean(dir); dir == "." {
		return "", nil
	}
	return dir, nil
}
