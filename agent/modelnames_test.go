package agent_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
)

func TestModelNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	names := []string{"a.b", "a_b", "a.b.c", "a_b.c", "a.b_c", "plain", long + ".", long + "_", "x."}
	shown, taken := agent.ModelNames(names), make(map[string]bool)
	for _, name := range names {
		safe := shown[name]
		if safe == "" || len(safe) > 64 || strings.Contains(safe, ".") || taken[safe] {
			t.Errorf("%s is shown as %q", name, safe)
		}
		taken[safe] = true
		if !strings.Contains(name, ".") && safe != name {
			t.Errorf("%s needed no other name, but got %s", name, safe)
		}
	}
	if shown["x."] != "x_" || shown["a.b"] == "a_b" {
		t.Errorf("names %v", shown)
	}
	// Names made to collide with the way collisions are told apart do not break it.
	for range 50 {
		names = append(names, agent.ModelNames(names)["a.b"])
	}
	if safe := agent.ModelNames(names)["a.b"]; safe == "" ||
		strings.Count(strings.Join(names, " ")+" ", " "+safe+" ") != 0 {
		t.Errorf("a.b is shown as %q", safe)
	}
}

// Every name a device may register has one that models accept, which does not depend on what else there is.
func TestModelNamesOfForeignLetters(t *testing.T) {
	accepted := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	names := []string{
		"2fa_code", "_hidden", "погода", "погоды", "get_погода", "天气", "größe.messen", "grosse.messen", "नमस्ते", "ა",
		"__", "a-b",
		strings.Repeat("я", 64), strings.Repeat("ä", 64), strings.Repeat("x", 64),
	}
	shown, taken := agent.ModelNames(names), make(map[string]bool)
	for _, name := range names {
		safe := shown[name]
		if !accepted.MatchString(safe) || taken[safe] {
			t.Errorf("%s is shown as %q", name, safe)
		}
		taken[safe] = true
		if alone := agent.ModelNames([]string{name})[name]; alone != safe {
			t.Errorf("%s alone is shown as %q, among others as %q", name, alone, safe)
		}
	}
	if shown["2fa_code"] != "2fa_code" || shown["_hidden"] != "_hidden" ||
		!strings.HasPrefix(shown["größe.messen"], "groe_messen_") ||
		!strings.HasPrefix(shown["get_погода"], "get_") {
		t.Errorf("names %v", shown)
	}
}
