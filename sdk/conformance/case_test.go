package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// testCase is a file of cases/. README.md describes the format.
type testCase struct {
	name   string
	About  string         `json:"about"`
	Needs  []string       `json:"needs"`  // what not every SDK has
	Device map[string]any `json:"device"` // options of the device
	Steps  []step         `json:"steps"`
}

// restarts reports whether the case restarts the device's program.
func (c *testCase) restarts() bool {
	return slices.ContainsFunc(c.Steps, func(s step) bool { return s.do == "restart" })
}

// step is an object with one member: what to do, and with what.
type step struct {
	do   string
	with json.RawMessage
}

func (s *step) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	if len(members) != 1 {
		return fmt.Errorf("a step has one member: %s", text)
	}
	for s.do, s.with = range members {
	}
	return nil
}

// bind decodes what the step is done with.
func (s *step) bind(v any) error {
	decoder := json.NewDecoder(bytes.NewReader(s.with))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v)
}

func readCases(t *testing.T) []testCase {
	t.Helper()
	paths, err := filepath.Glob("cases/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	slices.Sort(paths)
	var cases []testCase
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := testCase{name: strings.TrimSuffix(filepath.Base(path), ".json")}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		cases = append(cases, c)
	}
	return cases
}

// differ compares a value with a pattern, and returns what is different; empty: nothing. Objects may have more members
// than the pattern names. An object whose members begin with $ is a condition.
func differ(at string, pattern, got any, there bool) string {
	switch want := pattern.(type) {
	case map[string]any:
		for key, operand := range want {
			if strings.HasPrefix(key, "$") {
				return condition(at, key, operand, got, there)
			}
		}
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %s, not an object", at, short(got))
		}
		for key, value := range want {
			member, there := object[key]
			if d := differ(at+"."+key, value, member, there); d != "" {
				return d
			}
		}
		return ""
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return fmt.Sprintf("%s is %s, not a list of %d", at, short(got), len(want))
		}
		for i := range want {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), want[i], items[i], true); d != "" {
				return d
			}
		}
		return ""
	}
	if !there || got != pattern {
		return fmt.Sprintf("%s is %s, not %s", at, short(got), short(pattern))
	}
	return ""
}

func condition(at, name string, operand, got any, there bool) string {
	text, _ := got.(string)
	ok := false
	switch name {
	case "$absent":
		ok = !there
	case "$any":
		ok = there
	case "$match":
		ok = there && regexp.MustCompile(operand.(string)).MatchString(text)
	case "$length":
		ok = there && float64(utf8.RuneCountInString(text)) == operand
	case "$has", "$lacks":
		items, isList := got.([]any)
		ok = isList
		for _, item := range operand.([]any) {
			ok = ok && slices.Contains(items, item) == (name == "$has")
		}
	}
	if !ok {
		return fmt.Sprintf("%s is %s, which is not %s %s", at, short(got), name, short(operand))
	}
	return ""
}

// expand replaces {"$repeat": text, "$times": n} in what is sent.
func expand(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["$repeat"].(string); ok {
			return strings.Repeat(text, int(v["$times"].(float64)))
		}
		for key, value := range v {
			v[key] = expand(value)
		}
	case []any:
		for i, value := range v {
			v[i] = expand(value)
		}
	}
	return v
}

func short(v any) string {
	text, _ := json.Marshal(v)
	if len(text) > 300 {
		return fmt.Sprintf("%s… (%d bytes)", text[:300], len(text))
	}
	return string(text)
}
