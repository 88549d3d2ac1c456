package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/internal/days"
	"github.com/farhand/farhand/internal/typo"
)

// MaxFile bounds a policy file, in bytes.
const MaxFile = 256 << 10

// document returns the top node of a file. It returns nil if there is none, or if the file is not valid YAML.
func (r *reader) document(text []byte) *yaml.Node {
	if len(text) > MaxFile {
		r.wrongAt(place{1, 1}, "a policy file may have at most %d bytes", MaxFile)
		return nil
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	err := dec.Decode(&doc)
	if err == nil && len(doc.Content) > 0 {
		if err = dec.Decode(&more); err == nil {
			r.wrong(&more, "a policy file must have one document; a second one begins here")
			return nil
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.problems = append(r.problems, syntaxProblem(err))
		return nil
	}
	if len(doc.Content) == 0 { // comments only
		return nil
	}
	if r.refuseTricks(doc.Content[0]); len(r.problems) > 0 {
		return nil
	}
	return doc.Content[0]
}

func syntaxProblem(err error) Problem {
	if at, ok := errors.AsType[*yaml.LoadError](err); ok {
		return Problem{max(at.Mark.Line, 1), max(at.Mark.Column, 1), at.Message}
	}
	return Problem{1, 1, err.Error()}
}

// refuseTricks rejects what makes a file mean something else than it shows: anchors, aliases, merged keys, tags.
func (r *reader) refuseTricks(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.wrong(n, "anchors and aliases are not allowed; use a group for what several rules share")
		return
	case n.Tag == "!!merge":
		r.wrong(n, "merged keys (<<) are not allowed")
	case n.Style&yaml.TaggedStyle != 0:
		r.wrong(n, "type tags (%s) are not allowed", n.Tag)
	}
	for _, child := range n.Content {
		r.refuseTricks(child)
	}
}

func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	r.wrongAt(placeOf(n), format, args...)
}

// place is a position in a file, counted from 1.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

func (r *reader) wrongAt(at place, format string, args ...any) {
	r.problems.add(at, format, args...)
}

// field is a known key of a mapping, with the reader of its value.
type field struct {
	key  string
	read func(*yaml.Node)
}

// fields reads a mapping. Unknown and duplicate keys are problems.
func (r *reader) fields(n *yaml.Node, what string, known ...field) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, "%s must be a mapping of keys to values", what)
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line, twice := seen[key.Value]; twice {
			r.wrong(key, "%q appears twice; the first is in line %d", short(key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		at := slices.IndexFunc(known, func(f field) bool { return key.Kind == yaml.ScalarNode && f.key == key.Value })
		if at < 0 {
			var keys []string
			for _, f := range known {
				keys = append(keys, f.key)
			}
			r.unknown(key, "field", keys)
			continue
		}
		known[at].read(value)
	}
}

// member returns the value of a key in a mapping, nil if there is none.
func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// maxHints bounds the known words that a misspelt word is compared with, and the words listed.
const maxHints = 100

// unknown records that a word is not one of the known ones. There may be thousands of group names.
func (r *reader) unknown(n *yaml.Node, what string, known []string) {
	if len(r.problems) >= maxProblems {
		return
	}
	known = known[:min(len(known), maxHints)]
	hint := "none is defined"
	if len(known) > 0 {
		hint = "there are: " + strings.Join(known, ", ")
	}
	meant := func(k string) bool { return typo.Distance(short(n.Value), short(k)) <= 2 }
	if i := slices.IndexFunc(known, meant); i >= 0 {
		hint = fmt.Sprintf("did you mean %q?", known[i])
	}
	r.wrong(n, "there is no %s %q; %s", what, short(n.Value), hint)
}

func short(s string) string { return fmt.Sprintf("%.64s", s) }

// each reads the items of a list. A single value counts as a list with one item.
func (r *reader) each(n *yaml.Node, read func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		read(n)
		return
	}
	if len(n.Content) == 0 {
		r.wrong(n, "the list is empty; remove the field")
	}
	for _, item := range n.Content {
		read(item)
	}
}

func list[T any](r *reader, n *yaml.Node, read func(*yaml.Node) T) (all []T) {
	r.each(n, func(n *yaml.Node) { all = append(all, read(n)) })
	return all
}

func words[T ~string](r *reader, n *yaml.Node, what string, known []T) []T {
	return list(r, n, func(n *yaml.Node) T { return oneOf(r, n, what, known) })
}

// text returns a scalar as written. It returns an empty text for any other node.
func (r *reader) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		r.wrong(n, "this must be a word or text")
		return ""
	}
	return n.Value
}

// oneOf returns a word if it is a known one, else an empty word.
func oneOf[T ~string](r *reader, n *yaml.Node, what string, known []T) T {
	word := r.text(n)
	if word == "" || slices.Contains(known, T(word)) {
		return T(word)
	}
	var all []string
	for _, k := range known {
		all = append(all, string(k))
	}
	r.unknown(n, what, all)
	return ""
}

// number returns a whole number from 1 to most. It returns 0 for anything else.
func (r *reader) number(n *yaml.Node, most int) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < 1 || v > most {
		r.wrong(n, "this must be a whole number from 1 to %d", most)
		return 0
	}
	return v
}

// flag returns true or false. It returns nil for anything else.
func (r *reader) flag(n *yaml.Node) *bool {
	v := n.Value == "true"
	if n.Kind != yaml.ScalarNode || !v && n.Value != "false" {
		r.wrong(n, "this must be true or false")
		return nil
	}
	return &v
}

// duration returns a time such as 30m, 24h or 7d. The minimum is one second.
func (r *reader) duration(n *yaml.Node) time.Duration {
	v, err := days.Parse(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < time.Second {
		r.wrong(n, "this must be a duration of at least 1s, such as 30m, 24h or 7d")
		return 0
	}
	return v
}
