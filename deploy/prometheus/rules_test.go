// Package prometheus_test checks the alert rules: their names against the table of metrics, their sections in
// docs/runbooks.md, and that promtool's tests, which `.ci/deps alerts` and -alerts run, fire and clear each alert.
package prometheus_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/internal/metrics/metricstest"
)

const runbooks = "https://github.com/farhand/farhand/blob/main/docs/runbooks.md#"

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// readYAML reads a file of this folder, without unknown fields.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	readYAML(t, "rules.yaml", &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d rules", len(all))
	}
	return all
}

// templateLabel is a label in the text of an alert.
var templateLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// TestRulesNameWhatExists: each metric, label and value of each expression exists, and each label of a summary is one
// of a metric in the expression.
func TestRulesNameWhatExists(t *testing.T) {
	for _, r := range rules(t) {
		_, errs := metricstest.Check(r.Expr)
		for _, err := range errs {
			t.Errorf("%s: %v", r.Alert, err)
		}
		for _, label := range templateLabel.FindAllStringSubmatch(r.Annotations["summary"], -1) {
			if _, errs := metricstest.Check("sum by (" + label[1] + ") (" + r.Expr + ")"); len(errs) > 0 {
				t.Errorf("%s: its summary has the label %s: %v", r.Alert, label[1], errs)
			}
		}
	}
}

// TestEveryAlertHasARunbook: a section with a meaning, a first command and advice, which the alert's runbook_url names;
// and no section without an alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	page, err := metricstest.ReadRunbooks("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := page.Alerts()
	for _, r := range rules(t) {
		meaning, command, advice := page.Section(r.Alert)
		if len(meaning) < 40 || command == "" || len(advice) < 60 {
			t.Errorf("docs/runbooks.md has no section of %s with its meaning, a command and what to do", r.Alert)
		}
		if got := r.Annotations["runbook_url"]; got != runbooks+strings.ToLower(r.Alert) {
			t.Errorf("the runbook of %s is %q", r.Alert, got)
		}
		if !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", r.Alert)
		}
		sections = slices.DeleteFunc(sections, func(name string) bool { return name == r.Alert })
	}
	if len(sections) > 0 {
		t.Errorf("docs/runbooks.md has sections without an alert: %q", sections)
	}
}

// TestEveryAlertFiresAndClears: promtool's tests have one for each alert, and none for another, in which it first fires
// and then does not.
func TestEveryAlertFiresAndClears(t *testing.T) {
	var file struct {
		Tests []struct {
			Name   string `yaml:"name"`
			Expect []struct {
				Expr    string `yaml:"expr"`
				Samples []any  `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		} `yaml:"tests"`
	}
	readYAML(t, "rules_test.yaml", &file)
	tested := make(map[string]bool)
	for _, test := range file.Tests {
		want := `count by (alertname) (ALERTS{alertname="` + test.Name + `",alertstate="firing"})`
		tested[test.Name] = len(test.Expect) == 2 && test.Expect[0].Expr == want && test.Expect[1].Expr == want &&
			len(test.Expect[0].Samples) == 1 && len(test.Expect[1].Samples) == 0
	}
	for _, r := range rules(t) {
		if !tested[r.Alert] {
			t.Errorf("rules_test.yaml does not fire and clear %s", r.Alert)
		}
		delete(tested, r.Alert)
	}
	for name := range tested {
		t.Errorf("rules_test.yaml tests %q, which is no alert", name)
	}
}
