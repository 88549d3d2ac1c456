package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farhand/farhand/internal/strictjson"
)

// Limits of the regular expressions in one schema. A few bytes, such as c{1000}, can become a program of megabytes.
const (
	maxPatternBytes        = 1024 // of its text
	maxPatternInstructions = 4096 // of its program
	maxPatterns            = 128  // in one schema

	// instructionBytes and runeBytes are the memory of an instruction, and of each bound of its character class. They
	// are doubled, because an anchored pattern also has a second, faster form.
	instructionBytes = 128
	runeBytes        = 8
)

// limitError is the limit that a schema exceeds. Its text is for the author of the schema.
type limitError string

func (e limitError) Error() string { return string(e) }

func beyond(format string, args ...any) error { return limitError(fmt.Sprintf(format, args...)) }

type pattern struct {
	*regexp.Regexp
	instructions int
}

var _ jsonschema.Regexp = (*pattern)(nil)

// patterns compiles the regular expressions of one schema, each once, and rejects those that are too large.
type patterns struct {
	known map[string]*pattern
	cost  parseCost
	size  int   // maximum bytes of their programs
	err   error // the first limit that was exceeded
}

// compile implements jsonschema.RegexpEngine.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if known := p.known[text]; known != nil {
		return known, nil
	}
	found, size, err := p.build(text)
	if err != nil {
		if _, ok := err.(limitError); ok && p.err == nil {
			p.err = err
		}
		return nil, err
	}
	if p.known == nil {
		p.known = make(map[string]*pattern)
	}
	p.known[text] = found
	p.size += size
	return found, nil
}

func (p *patterns) build(text string) (*pattern, int, error) {
	if len(p.known) == maxPatterns {
		return nil, 0, beyond("a schema may have at most %d patterns", maxPatterns)
	}
	instructions, size, err := p.cost.measure(text)
	if err != nil {
		return nil, 0, err
	}
	if p.size+size > MaxSize {
		return nil, 0, beyond("its compiled patterns take more than %d bytes", MaxSize)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, 0, err
	}
	return &pattern{re, instructions}, size, nil
}

// measure returns upper bounds of the instructions of a pattern and of their bytes, without compiling it.
func (c *parseCost) measure(text string) (instructions, size int, err error) {
	if len(text) > maxPatternBytes {
		return 0, 0, beyond("a pattern may have at most %d bytes", maxPatternBytes)
	}
	if err := c.add(text); err != nil {
		return 0, 0, err
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, 0, err
	}
	program := sizeOf(parsed)
	if program.instructions > maxPatternInstructions {
		return 0, 0, beyond("a pattern may have at most %d instructions with its repetitions expanded",
			maxPatternInstructions)
	}
	return program.instructions, program.instructions*instructionBytes + program.runes*runeBytes, nil
}

type programSize struct {
	instructions int
	runes        int // bounds of the character classes in the instructions
}

func sizeOf(re *syntax.Regexp) programSize {
	var sum programSize
	for _, sub := range re.Sub {
		s := sizeOf(sub)
		sum.instructions += s.instructions
		sum.runes += s.runes
	}
	switch re.Op {
	case syntax.OpLiteral:
		return programSize{len(re.Rune), 2 * len(re.Rune)}
	case syntax.OpCharClass:
		return programSize{1, len(re.Rune)}
	case syntax.OpAlternate:
		sum.instructions += len(re.Sub)
	case syntax.OpRepeat:
		times := max(re.Min, re.Max, 1)
		choices := max(re.Max-re.Min, 0) // whether to continue
		return programSize{min(times*sum.instructions+choices+2, 1<<30), min(times*sum.runes, 1<<30)}
	}
	sum.instructions += 2
	return sum
}

// directMatch is the maximum number of steps of an unmetered match. Longer matches are metered.
const directMatch = 1 << 16

// matches applies a pattern to a text. The work grows with the product of their lengths.
func (w *walk) matches(re jsonschema.Regexp, text string) bool {
	p, ok := re.(*pattern)
	if !ok { // all patterns are compiled by this package
		return w.spend(len(text)) && re.MatchString(text)
	}
	if steps := (p.instructions + 1) * (len(text) + 1); steps <= directMatch {
		return w.spend(16+steps/8) && p.MatchString(text)
	}
	found := p.MatchReader(&meteredText{text: text, work: &w.meter, each: 2 + p.instructions/16})
	return found && !w.stopped()
}

// meteredText is a text that ends early when reading it exceeds the work limit.
type meteredText struct {
	text string
	work *meter
	each int // work per character
}

var _ io.RuneReader = (*meteredText)(nil)

func (t *meteredText) ReadRune() (rune, int, error) {
	if len(t.text) == 0 || !t.work.spend(t.each) {
		return 0, 0, io.EOF
	}
	r, size := utf8.DecodeRuneInString(t.text)
	t.text = t.text[size:]
	return r, size, nil
}

// Parsing alone can be slow. A Unicode class is a list of hundreds of ranges. In a case-insensitive pattern, every
// character of a range is folded separately. Both are counted over all patterns of a schema, before any is parsed.
const (
	maxUnicodeClasses = 64     // such as \pL
	maxFolded         = 50_000 // characters in case-insensitive ranges; Chinese has twenty thousand
)

// parseCost counts what makes parsing patterns slow.
type parseCost struct {
	unicodeClasses int
	folded         int // characters
}

func (c *parseCost) add(pattern string) error {
	c.unicodeClasses += strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`)
	if c.unicodeClasses > maxUnicodeClasses {
		return beyond(`the patterns of a schema may have at most %d classes like \pL`, maxUnicodeClasses)
	}
	if !ignoresCase(pattern) {
		return nil
	}
	for i := range len(pattern) {
		if pattern[i] == '-' {
			c.folded += max(0, int(runeAfter(pattern[i+1:])-runeBefore(pattern[:i])))
		}
	}
	if c.folded > maxFolded {
		return beyond("the ranges in the patterns of a schema may have at most %d characters under (?i)", maxFolded)
	}
	return nil
}

// ignoresCase reports whether a flag i may be set anywhere in a pattern.
func ignoresCase(pattern string) bool {
	for {
		_, rest, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		flags := rest[:len(rest)-len(strings.TrimLeft(rest, "imsU-"))]
		if strings.Contains(flags, "i") {
			return true
		}
		pattern = rest
	}
}

// runeAfter returns the first character of text. Below utf8.RuneSelf the result may be inexact.
func runeAfter(text string) rune {
	if hex, ok := strings.CutPrefix(text, `\x{`); ok {
		hex, _, _ = strings.Cut(hex, "}")
		return hexRune(hex)
	}
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

func runeBefore(text string) rune {
	if i := strings.LastIndex(text, `\x{`); i >= 0 && strings.HasSuffix(text, "}") {
		return hexRune(text[i+3 : len(text)-1])
	}
	r, _ := utf8.DecodeLastRuneInString(text)
	return r
}

func hexRune(hex string) rune {
	n, err := strconv.ParseInt(hex, 16, 32)
	if err != nil {
		return utf8.MaxRune
	}
	return rune(n)
}

// object is a JSON object that keeps the order of its members, because models read it.
type object struct{ members []member }

type member struct {
	name  string
	value any // *object, []any, string, json.Number, bool or nil
}

func (o *object) find(name string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.name == name })
}

func (o *object) get(name string) any {
	if i := o.find(name); i >= 0 {
		return o.members[i].value
	}
	return nil
}

func (o *object) set(name string, value any) {
	if i := o.find(name); i >= 0 {
		o.members[i].value = value
		return
	}
	o.members = append(o.members, member{name, value})
}

// readOrdered decodes a JSON text. Of repeated names, the last value counts, as in encoding/json.
func readOrdered(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errTrailing
	}
	return v, nil
}

func readValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{}
		seen := make(map[string]int)
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			m := member{name.(string), v}
			if i, twice := seen[m.name]; twice {
				o.members[i] = m
				continue
			}
			seen[m.name] = len(o.members)
			o.members = append(o.members, m)
		}
		_, err := d.Token()
		return o, err
	default:
		return token, nil
	}
}

func appendOrdered(b []byte, v any) []byte {
	switch v := v.(type) {
	case *object:
		b = append(b, '{')
		for i, m := range v.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(strictjson.AppendString(b, m.name), ':')
			b = appendOrdered(b, m.value)
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendOrdered(b, item)
		}
		return append(b, ']')
	default:
		return strictjson.AppendScalar(b, v)
	}
}
