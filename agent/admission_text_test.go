package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
)

// unseen are characters that hide, reorder or command, one of each kind.
var unseen = map[string]string{
	"tag":                  "\U000E0041",
	"bidi override":        "\u202e",
	"bidi isolate":         "\u2066",
	"right-to-left mark":   "\u200f",
	"arabic letter mark":   "\u061c",
	"zero-width space":     "\u200b",
	"zero-width joiner":    "\u200d",
	"zero-width nonjoiner": "\u200c",
	"word joiner":          "\u2060",
	"byte order mark":      "\ufeff",
	"variation selector":   "\ufe0f",
	"variation supplement": "\U000E0101",
	"soft hyphen":          "\u00ad",
	"grapheme joiner":      "\u034f",
	"hangul filler":        "\u3164",
	"C1":                   "\u009b",
	"NEL":                  "\u0085",
	"ESC":                  "\u001b",
	"backspace":            "\u0008",
	"DEL":                  "\u007f",
	"mongolian selector":   "\u180b",
	"invisible times":      "\u2062",
	"noncharacter":         "\ufdd0",
	"annotation":           "\ufff9",
}

func admit(t *testing.T, spec registry.ToolSpec, reserved ...string) (registry.ToolSpec, error) {
	t.Helper()
	a := agent.NewAdmission(newPolicy(t, agent.PolicyRules{}), schema.NewValidator(), agent.AdmissionLimits{},
		reserved...)
	return a.Admit(t.Context(), spec, agent.SessionTools{})
}

// jsonText is text as JSON, with every character that is not plain ASCII escaped, as an attacker may write it.
func jsonText(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r < ' ' || r >= 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// What a model reads of a definition has no character in it that a person does not see.
func TestUnseenCharactersAreCleanedFromText(t *testing.T) {
	for name, char := range unseen {
		for where, parameters := range map[string]string{
			"title":       `{"type":"object","title":"a%sä"}`,
			"$comment":    `{"type":"object","$comment":"a%sä"}`,
			"description": `{"type":"object","properties":{"p":{"type":"string","description":"a%sä"}}}`,
		} {
			for _, written := range []string{char, jsonText(char)} {
				if written == char && char < " " {
					continue // no JSON
				}
				spec, err := admit(t, registry.ToolSpec{Name: "t",
					Parameters: json.RawMessage(fmt.Sprintf(parameters, written))})
				if err != nil {
					t.Errorf("%s in %s: %v", name, where, err)
				} else if want := fmt.Sprintf(parameters, ""); string(spec.Parameters) != want {
					t.Errorf("%s in %s: %q", name, where, spec.Parameters)
				}
			}
		}
		spec, err := admit(t, registry.ToolSpec{Name: "t", Description: "a" + char + "ä"})
		if err != nil || spec.Description != "aä" {
			t.Errorf("%s in the description: %q, %v", name, spec.Description, err)
		}
	}
}

// What a device compares with its own text is not changed: such a tool is refused, and its device is told where it is.
func TestUnseenCharactersInNamesAndValuesAreRefused(t *testing.T) {
	for name, char := range unseen {
		for where, parameters := range map[string]string{
			"properties":        `{"type":"object","properties":{"a%sä":{"type":"string"}}}`,
			"enum":              `{"type":"object","properties":{"p":{"enum":["x","a%sä"]}}}`,
			"const":             `{"type":"object","properties":{"p":{"const":"a%sä"}}}`,
			"default":           `{"type":"object","properties":{"p":{"default":{"description":"a%sä"}}}}`,
			"examples":          `{"type":"object","properties":{"p":{"examples":["a%sä"]}}}`,
			"required":          `{"type":"object","required":["a%sä"]}`,
			"pattern":           `{"type":"object","properties":{"p":{"pattern":"a%sä"}}}`,
			"patternProperties": `{"type":"object","patternProperties":{"a%sä":{}}}`,
			"$defs":             `{"type":"object","$defs":{"a%sä":{}}}`,
			"a keyword":         `{"type":"object","x-a%sä":1}`,
			"format":            `{"type":"object","properties":{"p":{"format":"a%sä"}}}`,
		} {
			for _, written := range []string{char, jsonText(char)} {
				if written == char && char < " " {
					continue
				}
				_, err := admit(t, registry.ToolSpec{Name: "t",
					Parameters: json.RawMessage(fmt.Sprintf(parameters, written))})
				if err == nil {
					t.Errorf("%s in %s was admitted", name, where)
				} else if e := wantCode(t, err, registry.CodeInvalidRequest); !strings.Contains(e.Message,
					"invisible") {
					t.Errorf("%s in %s: the reason is %q", name, where, e.Message)
				}
			}
		}
		if _, err := admit(t, registry.ToolSpec{Name: "a" + char + "ä"}); err == nil {
			t.Errorf("%s in a name was admitted", name)
		}
	}
}

// What people write with such characters stays as they write it.
func TestWritingStays(t *testing.T) {
	for name, said := range map[string]string{
		"persian": "می\u200cخواهم", "hindi": "क्\u200dष", "family": "👨\u200d👩\u200d👧", "heart": "❤\ufe0f",
		"flag":   "🏳\ufe0f\u200d🌈",
		"keycap": "1\ufe0f\u20e3", "thai": "น้ำ", "accents": "Größe, déjà vu", "lines": "a\n\tb",
	} {
		property := map[string]any{"enum": []string{said}, "description": said}
		parameters, _ := json.Marshal(map[string]any{"properties": map[string]any{said: property}})
		spec, err := admit(t, registry.ToolSpec{Name: "t", Description: said, Parameters: parameters})
		if name == "lines" && err != nil {
			continue // a name of a parameter is one line
		}
		if err != nil || spec.Description != said || string(spec.Parameters) != string(parameters) {
			t.Errorf("%s: %+q %s, %v", name, spec.Description, spec.Parameters, err)
		}
	}
}

// A name that looks like that of a built-in tool is taken for it.
func TestNamesThatLookReserved(t *testing.T) {
	for _, name := range []string{
		"time", "Time", "TIME", "tIme", "Sessions", "SESSIONS", "sessi0ns", "TlME",
		"ѕеѕѕіоnѕ", "tіme", "ТІМЕ", "ｔｉｍｅ", "𝐭𝐢𝐦𝐞", "tirne", "ṭime\u0323",
	} {
		if _, err := admit(t, registry.ToolSpec{Name: name}, "time", "sessions"); err == nil {
			t.Errorf("%s was admitted", name)
		}
	}
	for _, name := range []string{"times", "t1me", "get_time", "session", "время", "時間"} {
		if _, err := admit(t, registry.ToolSpec{Name: name}, "time", "sessions"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestToolNames(t *testing.T) {
	for _, name := range []string{
		"a", "Z9", "2fa_code", "_hidden", "__x", "a.b-c", "weather", "погода", "get_погода", "天气", "get天気", "größe",
		"नमस्ते", "날씨", "น้ำ",
		strings.Repeat("a", 64), strings.Repeat("я", 64),
	} {
		if _, err := admit(t, registry.ToolSpec{Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "bad name!", "bad name", "a/b", "a\\b", "a\tb", "a\x00b", "a:b", "a@b", "a$", "(a)", ".a", "-a", "a\u00a0b",
		"\u0301a", "😀",
		strings.Repeat("a", 65), strings.Repeat("я", 65), "gro\u0308ße", "pаypal", "\xff",
	} {
		if _, err := admit(t, registry.ToolSpec{Name: name}); err == nil {
			t.Errorf("%q was admitted", name)
		} else {
			wantCode(t, err, registry.CodeInvalidRequest)
		}
	}
}
