package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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
