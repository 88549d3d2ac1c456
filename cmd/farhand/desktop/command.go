package desktop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/farhand/farhand/cmd/farhand/nodetools"
	"github.com/farhand/farhand/registry/textsafe"
	"github.com/farhand/farhand/ws/client"
)

// rule is a command that may run without a question.
type rule struct {
	words []string
	more  bool // with any further arguments
}

// parseRule parses a rule: words, and * in the end for any further arguments.
func parseRule(text string) (r rule, err error) {
	if r.words, err = split(strings.TrimSuffix(text, " *")); err != nil {
		return r, err
	}
	r.more = strings.HasSuffix(text, " *")
	return r, nil
}

func (r rule) allows(words []string) bool {
	if r.more {
		return len(words) >= len(r.words) && slices.Equal(words[:len(r.words)], r.words)
	}
	return slices.Equal(words, r.words)
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
		if !slices.ContainsFunc(d.rules, func(r rule) bool { return r.allows(words) }) {
			question := "May an agent run this command?\n" + args.Command + "\nIt starts " + path
			if err := d.permit(ctx, "run", question, false); err != nil {
				return nil, err
			}
		}
		return nodetools.Run(ctx, d.command(ctx, program{path: path, args: words[1:]}))
	})
}
