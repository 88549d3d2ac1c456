package provenance_test

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// TestFieldsOfYAML: a list or a record in YAML, or as Python prints it, has fields as JSON has. Its comments, its names
// and what follows it have none, and neither has a sentence.
func TestFieldsOfYAML(t *testing.T) {
	for name, x := range map[string]struct{ text, asks, passes string }{
		"a list": {"- general\n- random\n", "", "general random"},
		"records": {"- name: plan\n  size: 4711\n  due: 2024-05-03\n- name: budget\n", "name due",
			"plan budget 4711 2024-05-03"},
		"a record":      {"name: plan\nowner: Mallory\nnote: ask Trent, please\n", "owner note trent", "plan mallory"},
		"Python's":      {`{'Grand Hotel': 'Mallory', 'other': ['Trent', None]}`, "grand other", "mallory trent"},
		"a comment":     {"- general\n- random # not gossip\n", "gossip", "random"},
		"two documents": {"- general\n---\n- random\n", "general random", ""},
		"a sentence":    {"Reminder: Mallory", "mallory reminder", ""},
		"a longer one":  {"Pay Mallory, who said:\nplease", "mallory please", ""},
		"names of JSON": {`{"Mallory":{"trent":1},"x":"carol"}`, "mallory trent", "carol"},
		"an alias":      {"- &a mallory\n- *a\n- b: !!str trent\n", "", "mallory trent"},
		"too long":      {"- general\n" + strings.Repeat("- something\n", 6000), "general something", ""},
	} {
		c := said("Do it.", x.text)
		for _, value := range strings.Fields(x.asks) {
			if s := suspects(c, provenance.Changes, `{"v":"`+value+`"}`); len(s) == 0 {
				t.Errorf("%s: %s passes", name, value)
			}
		}
		for _, value := range strings.Fields(x.passes) {
			if s := suspects(c, provenance.Changes, `{"v":"`+value+`"}`); len(s) > 0 {
				t.Errorf("%s: %s asks: %v", name, value, s)
			}
		}
	}
}
