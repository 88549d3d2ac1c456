package api

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
)

// Sizes of a page, in rows.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// params is a query string accepted by parseQuery: all names are known, only label, tag and type can have several
// values, and only q can be empty. Its methods return values, and failed returns the error of the first invalid one. It
// is nil if there is no query string.
type params struct {
	values url.Values
	err    error
}

// parseQuery parses a query string. It rejects anything that could make a filter match more than intended, and names
// the parameter.
func parseQuery(raw string, known []string) (*params, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "The query string is malformed.")
	}
	q := &params{values: values}
	for _, name := range slices.Sorted(maps.Keys(values)) { // the same request gets the same answer
		q.check(name, known)
	}
	return q, q.err
}

func (p *params) check(name string, known []string) {
	switch {
	case slices.Contains(known, name):
	case len(known) == 0:
		p.fail("The query parameter %.80q is unknown. This path takes none.", name)
	default:
		p.fail("The query parameter %.80q is unknown. This path takes: %s.", name, strings.Join(known, ", "))
	}
	if len(p.values[name]) > 1 && name != "label" && name != "type" && name != "tag" {
		p.fail("The query parameter %q is given more than once.", name)
	}
	for _, v := range p.values[name] {
		if v == "" && name != "q" {
			p.fail("The query parameter %q is empty. Leave it out instead.", name)
		}
		if !utf8.ValidString(v) {
			p.fail("The query parameter %q is not valid UTF-8.", name)
		}
	}
}

// fail records that a value is invalid. Only the first error counts.
func (p *params) fail(format string, args ...any) {
	if p.err == nil {
		p.err = registry.Errorf(registry.CodeInvalidRequest, format, args...)
	}
}

// failed returns the error of the first invalid value that was read.
func (p *params) failed() error {
	if p == nil {
		return nil
	}
	return p.err
}

func (p *params) all(name string) []string {
	if p == nil {
		return nil
	}
	return p.values[name]
}

func (p *params) has(name string) bool { return len(p.all(name)) > 0 }

// get returns the value of a parameter, or "" if it is absent.
func (p *params) get(name string) string {
	if !p.has(name) {
		return ""
	}
	return p.all(name)[0]
}

// encoded returns the query string, sorted by name.
func (p *params) encoded() string {
	if p == nil {
		return ""
	}
	return p.values.Encode()
}

// oneOf returns a parameter whose value must be one of choices, or "" if it is absent.
func (p *params) oneOf(name string, choices ...string) string {
	p.someOf(name, choices...)
	return p.get(name)
}

// someOf returns a parameter whose values must be among choices, or none if it is absent.
func (p *params) someOf(name string, choices ...string) []string {
	for _, v := range p.all(name) {
		if !slices.Contains(choices, v) {
			p.fail("The query parameter %q must be one of: %s.", name, strings.Join(choices, ", "))
		}
	}
	return p.all(name)
}

// number returns a parameter that must be a whole number from least to most, or absent if it is absent.
func (p *params) number(name string, least, most, absent int) int {
	if !p.has(name) {
		return absent
	}
	n, err := strconv.Atoi(p.get(name))
	if err != nil || n < least || n > most {
		p.fail("The query parameter %q must be a whole number from %d to %d.", name, least, most)
	}
	return n
}

func (p *params) limit() int { return p.number("limit", 1, maxLimit, defaultLimit) }

// time returns a parameter that is a time, or the zero time if it is absent.
func (p *params) time(name string) time.Time {
	if !p.has(name) {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, p.get(name)); err == nil && at.Year() >= 1970 {
			return at
		}
	}
	p.fail("The query parameter %q must be a time like 2026-11-22T09:00:00Z, or a day like 2026-11-22.", name)
	return time.Time{}
}

// sessionID returns the filter for one session, or "" if it is absent.
func (p *params) sessionID() string {
	id := p.get("session_id")
	if id == "" {
		return ""
	}
	if err := (registry.Key{Tenant: registry.DefaultTenant, Session: id}).Validate(); err != nil && p.err == nil {
		p.err = err
	}
	return id
}

// target returns the filters that select sessions.
func (p *params) target() registry.Target {
	t := registry.Target{SessionID: p.sessionID(), DeviceID: p.get("device_id"), UserID: p.get("user_id")}
	for _, pair := range p.all("label") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			p.fail("The query parameter \"label\" must look like key=value.")
		}
		if old, twice := t.Labels[key]; twice && old != value {
			p.fail("The label %.80q appears with two values; a session has only one.", key)
		}
		if t.Labels == nil {
			t.Labels = make(map[string]string)
		}
		t.Labels[key] = value
	}
	if len(t.Labels) > registry.MaxLabels { // the store looks up each, and no session has more
		p.fail("At most %d labels are allowed.", registry.MaxLabels)
	}
	return t
}

// tags returns the values of a parameter for tags of tools.
func (p *params) tags(name string) []string {
	tags := p.all(name)
	if len(tags) > registry.MaxTags {
		p.fail("The query parameter %q is given more than %d times.", name, registry.MaxTags)
	}
	for _, tag := range tags {
		if !registry.ValidTag(tag) {
			p.fail("The query parameter %q is not a valid tag: %.80q.", name, tag)
		}
	}
	return tags
}

// toolName returns a parameter that must be a valid name of a tool.
func (p *params) toolName(name string) string {
	v := p.get(name)
	if v != "" && !registry.ValidToolName(v) {
		p.fail("The query parameter %q is not a valid tool name.", name)
	}
	return v
}
