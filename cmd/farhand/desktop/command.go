package desktop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/farhand/farhand/cmd/farhand/nodetools"
	"github.com/farhand/farhand/registry/textsafe"
	"github.com/farhand/farhand/ws/client"
)

// rule is a command that may run without a question.
type rule struct {
	words []string
	more  string // further arguments: some, all, or empty for none
}

// Ends of rules. Options of many programs write files or start others, so that only all grants them.
const (
	some = " *"  // further arguments that do not begin with -
	all  = " **" // any further arguments
)

// parseRule parses a rule: words, and * or ** in the end.
func parseRule(text string) (r rule, err error) {
	for _, end := range []string{all, some} {
		if start, ok := strings.CutSuffix(text, end); ok {
			text, r.more = start, end
			break
		}
	}
	r.words, err = split(text)
	return r, err
}

func (r rule) allows(words []string) bool {
	if len(words) < len(r.words) || !slices.Equal(words[:len(r.words)], r.words) {
		return false
	}
	switch rest := words[len(r.words):]; r.more {
	case all:
		return true
	case some:
		return !slices.ContainsFunc(rest, func(word string) bool { return strings.HasPrefix(word, "-") })
	default:
		return len(rest) == 0
	}
}

// errShell is the error of commands that need a shell.
var errShell = errors.New("must be one program with its arguments: no shell runs here, so there are no pipes, " +
	"redirections, variables or patterns. Put special characters into single quotes")

// split returns the words of a command, without a shell's expansions.
func split(command string) (words []string, err error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(command), "")
	if err != nil || len(file.Stmts) != 1 {
		return nil, errors.Join(errShell, err)
	}
	stmt := file.Stmts[0]
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) == 0 || len(stmt.Redirs) > 0 || stmt.Background || stmt.Negated {
		return nil, errShell
	}
	for _, word := range call.Args {
		text, ok := literal(word.Parts)
		if !ok {
			return nil, errShell
		}
		words = append(words, text)
	}
	return words, nil
}

// special are the characters outside of quotes that a shell would expand.
const special = "*?[~"

// literal returns the text of a word, unless a shell would change it.
func literal(parts []syntax.WordPart) (string, bool) {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, special) {
				return "", false
			}
			b.WriteString(unescape(p.Value))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return "", false
				}
				b.WriteString(unescapeQuoted(lit.Value))
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// unescape removes the backslashes of text outside of quotes.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// unescapeQuoted removes the backslashes of text in double quotes: only those before some characters are special.
func unescapeQuoted(text string) string {
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`", "\\\n", "").Replace(text)
}

func (d *Desktop) runWay(context.Context) way {
	type command struct{ Command string }
	return by("programs of this computer", func(ctx context.Context, _ client.Call, args command) (any, error) {
		words, err := split(args.Command)
		if err != nil {
			return nil, fmt.Errorf("the command %w", err)
		}
		path := words[0]
		if !filepath.IsAbs(path) {
			if path = d.look(words[0]); path == "" || strings.ContainsAny(words[0], `/\`) {
				return nil, fmt.Errorf("there is no program %q on the PATH of this computer", textsafe.Clean(words[0]))
			}
		}
		if err := startable(d.system, path); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(d.rules, func(r rule) bool { return r.allows(words) }) {
			question := "May an agent run this program?\n" + shownCommand(path, words[1:])
			if err := d.permit(ctx, "run", question, false); err != nil {
				return nil, err
			}
		}
		return nodetools.Run(ctx, d.command(ctx, program{path: path, args: words[1:]}))
	})
}

// startable returns an error for a file that a system would start with another program. Windows gives batch files to
// its shell, which reads their arguments in ways of its own.
func startable(system, path string) error {
	if system != "windows" {
		return nil
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".exe", ".com":
		return nil
	}
	return fmt.Errorf("%q is no program: on Windows only files that end with .exe or .com run, and no shell does",
		textsafe.Clean(path))
}

// shownCommand returns what will start, on one line: quotes show where each word ends, and escapes what has no shape.
func shownCommand(path string, args []string) string {
	quoted := []string{strconv.Quote(path)}
	for _, arg := range args {
		quoted = append(quoted, strconv.Quote(arg))
	}
	return oneLine(strings.Join(quoted, " "))
}

// oneLine returns a text of an agent as a part of a question: no part of it looks like another line, and what a person
// would not see shows as the replacement character.
func oneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(textsafe.Expose(text))
}
