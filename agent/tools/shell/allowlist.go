package shell

import (
	"fmt"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/farhand/farhand/registry/legible"
)

const (
	maxChecked  = 16 << 10 // bytes of a command that is parsed
	maxOpeners  = 200      // characters of it that could begin something nested
	maxCommands = 100
	maxWords    = 2000
)

// allowlist says what may run in mode allowlist.
type allowlist struct {
	allow  []string // programs, each with the first arguments it must have
	inside bool     // arguments may not name files outside of the workspace
}

// segment is one program of a command, and what joins it to the next one.
type segment struct {
	words []string
	then  string // " | ", " && ", " || ", " &\n" or "\n"
}

// pipeline is a command that was checked: programs with literal arguments, in the order they were written.
type pipeline []segment

// args returns what the engine runs: the program itself if there is only one, else a shell with a command that is made
// of what was checked.
func (p pipeline) args(shell []string) (args []string, viaShell bool) {
	if len(p) == 1 {
		return p[0].words, false
	}
	return append(append([]string{}, shell...), p.String()), true
}

// String returns the command with every word in quotes, so that a shell finds nothing in it to expand, to look up or to
// take for a word of its own.
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

// check parses a command and returns it if all of it is allowed. The error says what is not.
func (a allowlist) check(command string) (p pipeline, err error) {
	if err := cheap(command); err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // whatever the parser cannot stand is nothing to run
			p, err = nil, forbidden("The command cannot be parsed. Write it in a simpler way.")
		}
	}()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(command), "")
	if err != nil {
		return nil, forbidden("The command cannot be parsed as one of a POSIX shell: %s", legible.Line(err.Error()))
	}
	for _, stmt := range file.Stmts {
		if p, err = a.statement(p, stmt, newline); err != nil {
			return nil, err
		}
	}
	if len(p) == 0 {
		return nil, forbidden("The command runs nothing.")
	}
	return p, nil
}

// cheap refuses what is not worth parsing, or costs too much.
func cheap(command string) error {
	if len(command) > maxChecked {
		return forbidden("The command has %d bytes; in mode allowlist at most %d are looked at.", len(command),
			maxChecked)
	}
	hidden := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
	if strings.ContainsFunc(command, hidden) || legible.Hides(command) {
		return forbidden("The command has characters that nobody sees, such as controls. Use visible ones.")
	}
	openers := 0
	for i := range len(command) {
		if strings.IndexByte("({[`$<", command[i]) >= 0 {
			openers++
		}
	}
	if openers > maxOpeners {
		return forbidden("The command has more brackets and substitutions than are looked at.")
	}
	return nil
}

// statement adds the programs of a statement. then is what follows it.
func (a allowlist) statement(p pipeline, s *syntax.Stmt, then string) (pipeline, error) {
	if s.Background {
		then = background
	}
	switch {
	case len(s.Redirs) > 0:
		return nil, forbidden("Redirections and here-documents are not allowed in mode allowlist. " +
			"Files are written with the tool write.")
	case s.Negated, s.Coprocess, s.Disown:
		return nil, tooClever("!")
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return a.program(p, cmd, then)
	case *syntax.BinaryCmd:
		operator, ok := operators[cmd.Op]
		if !ok {
			return nil, tooClever(cmd.Op.String())
		}
		p, err := a.statement(p, cmd.X, operator)
		if err != nil {
			return nil, err
		}
		return a.statement(p, cmd.Y, then)
	case nil:
		return nil, tooClever("an empty statement")
	default:
		return nil, tooClever(construct(cmd))
	}
}

var operators = map[syntax.BinCmdOperator]string{
	syntax.AndStmt: " && ", syntax.OrStmt: " || ", syntax.Pipe: " | ",
}

// tooClever refuses a part of the shell's language.
func tooClever(what string) error {
	return forbidden("In mode allowlist a command is programs with plain arguments, joined by |, &&, || and ;. "+
		"This is not: %s.", what)
}

// construct names a construct of the shell's language.
func construct(cmd syntax.Command) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", cmd), "*syntax.")
	return strings.ToLower(strings.TrimSuffix(name, "Clause"))
}

// program adds one program with its arguments.
func (a allowlist) program(p pipeline, call *syntax.CallExpr, then string) (pipeline, error) {
	if len(call.Assigns) > 0 {
		return nil, forbidden("Assignments of variables are not allowed in mode allowlist. Use env, if that is.")
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

// literal returns what a word stands for. A word that a shell would expand, however little, is refused: what it stands
// for is only known when it runs.
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
	return forbidden("Variables and substitutions are not allowed in mode allowlist. Put the text they stand for, " +
		"or, if it is meant as it is, put it in single quotes.")
}

func expands(what string) error {
	return forbidden("%s is not allowed in mode allowlist, because a shell would expand it. Put it in single quotes "+
		"if it is meant as it is, or name the files.", what)
}

// bare adds a part of a word without quotes. first: the word begins with it.
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
			case text[i] != '\n': // a line that goes on is one word
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

// doubleQuoted adds a part of a word in double quotes.
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
