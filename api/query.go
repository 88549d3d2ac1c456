package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
)

// Sizes of a page, in rows.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// params is a query string accepted by parseQuery. All names are known, only label and type can have several values,
// and only q can be empty. It is nil if there is no query string.
type params map[string][]string

// parseQuery parses a query string. It rejects anything that could make a filter match more than intended, and names
// the parameter.
func parseQuery(raw string, known []string) (params, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "The query string is malformed.")
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the same request gets the same answer
	for _, name := range names {
		if err := checkParam(name, values[name], known); err != nil {
			return nil, err
		}
	}
	return params(values), nil
}

func checkParam(name string, values, known []string) error {
	if !slices.Contains(known, name) {
		if len(known) == 0 {
			return registry.Errorf(registry.CodeInvalidRequest,
				"The query parameter %.80q is unknown. This path takes none.", name)
		}
		return registry.Errorf(registry.CodeInvalidRequest,
			"The query parameter %.80q is unknown. This path takes: %s.", name, strings.Join(known, ", "))
	}
	if len(values) > 1 && name != "label" && name != "type" {
		return registry.Errorf(registry.CodeInvalidRequest, "The query parameter %q is given more than once.", name)
	}
	for _, v := range values {
		if v == "" && name != "q" {
			return registry.Errorf(registry.CodeInvalidRequest,
				"The query parameter %q is empty. Leave it out instead.", name)
		}
		if !utf8.ValidString(v) {
			return registry.Errorf(registry.CodeInvalidRequest, "The query parameter %q is not valid UTF-8.", name)
		}
	}
	return nil
}

func (p params) has(name string) bool { return len(p[name]) > 0 }

// get returns the value of a parameter, or "" if it is absent.
func (p params) get(name string) string {
	if !p.has(name) {
		return ""
	}
	return p[name][0]
}

// oneOf returns a parameter whose value must be one of choices, or "" if it is absent.
func (p params) oneOf(name string, choices ...string) (string, error) {
	all, err := p.someOf(name, choices...)
	if len(all) == 0 {
		return "", err
	}
	return all[0], nil
}

// someOf returns a parameter whose values must be among choices, or none if it is absent.
func (p params) someOf(name string, choices ...string) ([]string, error) {
	for _, v := range p[name] {
		if !slices.Contains(choices, v) {
			return nil, registry.Errorf(registry.CodeInvalidRequest, "The query parameter %q must be one of: %s.",
				name, strings.Join(choices, ", "))
		}
	}
	return p[name], nil
}

func (p params) limit() (int, error) {
	if !p.has("limit") {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(p.get("limit"))
	if err != nil || n < 1 || n > maxLimit {
		return 0, registry.Errorf(registry.CodeInvalidRequest,
			"The query parameter \"limit\" must be a whole number from 1 to %d.", maxLimit)
	}
	return n, nil
}

// sessionID returns the filter for one session, or "" if it is absent.
func (p params) sessionID() (string, error) {
	id := p.get("session_id")
	if id == "" {
		return "", nil
	}
	return id, registry.Key{Tenant: registry.DefaultTenant, Session: id}.Validate()
}

// target returns the filters that select sessions.
func (p params) target() (registry.Target, error) {
	t := registry.Target{DeviceID: p.get("device_id"), UserID: p.get("user_id")}
	var err error
	if t.SessionID, err = p.sessionID(); err != nil {
		return t, err
	}
	for _, pair := range p["label"] {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return t, registry.Errorf(registry.CodeInvalidRequest,
				"The query parameter \"label\" must look like key=value.")
		}
		if old, twice := t.Labels[key]; twice && old != value {
			return t, registry.Errorf(registry.CodeInvalidRequest, "No session has two values of the label %.80q.", key)
		}
		if t.Labels == nil {
			t.Labels = make(map[string]string)
		}
		t.Labels[key] = value
	}
	return t, nil
}

// toolName returns a parameter that must be a valid name of a tool.
func (p params) toolName(name string) (string, error) {
	v := p.get(name)
	if v != "" && !registry.ValidToolName(v) {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"The query parameter %q is not a possible name of a tool.", name)
	}
	return v, nil
}
