// Package metricstest checks Prometheus expressions, of dashboards and alert rules, against the table of metrics. It
// does not parse them: promtool does, in a test of deploy/prometheus/live that a flag starts.
package metricstest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/metrics"
)

// token is one word, text, matcher or sign of an expression.
var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[A-Za-z_:$][A-Za-z0-9_:]*|=~|!=|!~|\d[\w.]*|\S`)

// Of targets, which Prometheus adds to every series, and of the buckets of a histogram.
var targetLabels = []string{"instance", "job"}

// keywords of the language that are neither functions nor metrics.
var keywords = []string{"and", "or", "unless", "offset", "bool", "group_left", "group_right", "inf"}

// grouping are the keywords before a list of labels.
var grouping = []string{"by", "without", "on", "ignoring"}

// checker reads an expression.
type checker struct {
	tokens []string
	at     int
	table  map[string]metrics.Metric
	known  map[string]bool // labels of the metrics that the expression names
	groups []string        // labels that it groups by
	used   []string
	errs   []error
}

// Check returns the metrics that an expression names, and what does not exist: metrics, labels of a metric, values of a
// label, and labels in a grouping that no metric of the expression has.
func Check(expr string) (used []string, errs []error) {
	c := &checker{tokens: token.FindAllString(expr, -1), table: table(), known: make(map[string]bool)}
	for _, l := range targetLabels {
		c.known[l] = true
	}
	for c.at < len(c.tokens) {
		c.step()
	}
	for _, label := range c.groups {
		if !c.known[label] {
			c.fail("no metric of the expression has the label %q", label)
		}
	}
	if len(c.used) == 0 {
		c.fail("the expression names no metric")
	}
	return c.used, c.errs
}

// table returns what a scrape has, by name.
func table() map[string]metrics.Metric {
	all := map[string]metrics.Metric{"up": {Name: "up"}}
	for _, name := range metrics.Runtime() {
		all[name] = metrics.Metric{Name: name}
	}
	for _, m := range metrics.Table() {
		if m.Kind != metrics.Histogram {
			all[m.Name] = m
			continue
		}
		all[m.Name+"_sum"], all[m.Name+"_count"] = m, m
		buckets := m
		buckets.Labels = append(slices.Clone(m.Labels), metrics.Label{Name: "le", More: len(m.Buckets) + 1})
		all[m.Name+"_bucket"] = buckets
	}
	return all
}

func (c *checker) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *checker) next() string {
	if c.at >= len(c.tokens) {
		return ""
	}
	c.at++
	return c.tokens[c.at-1]
}

func (c *checker) peek() string {
	if c.at >= len(c.tokens) {
		return ""
	}
	return c.tokens[c.at]
}

// step reads a grouping, a selector, a range, or one other token.
func (c *checker) step() {
	word := c.next()
	switch {
	case slices.Contains(grouping, word):
		c.group()
	case word == "[":
		for c.at < len(c.tokens) && c.next() != "]" {
		}
	case !regexp.MustCompile(`^[a-zA-Z_:]`).MatchString(word), slices.Contains(keywords, word), c.peek() == "(":
	case slices.Contains(grouping, c.peek()): // sum by (…)
	default:
		c.selector(word)
	}
}

// group reads a list of labels.
func (c *checker) group() {
	c.next() // (
	for word := c.next(); word != ")" && word != ""; word = c.next() {
		if word != "," {
			c.groups = append(c.groups, word)
		}
	}
}

// selector reads the matchers of a metric.
func (c *checker) selector(name string) {
	c.used = append(c.used, name)
	m, ok := c.table[name]
	if !ok {
		c.fail("there is no metric %s", name)
	}
	for _, l := range m.Labels {
		c.known[l.Name] = true
	}
	if c.peek() != "{" {
		return
	}
	c.next()
	for word := c.next(); word != "}" && word != ""; word = c.next() {
		if word == "," {
			continue
		}
		operator, value := c.next(), strings.Trim(c.next(), `"`)
		if ok && !slices.Contains(targetLabels, word) {
			c.matcher(m, word, operator, value)
		}
	}
}

// matcher checks one matcher. Each alternative of a pattern must match a value. Values chosen at run time or by an
// operator are not checked.
func (c *checker) matcher(m metrics.Metric, label, operator, value string) {
	i := slices.IndexFunc(m.Labels, func(l metrics.Label) bool { return l.Name == label })
	if i < 0 {
		c.fail("%s has no label %q", m.Name, label)
		return
	}
	l := m.Labels[i]
	if l.More > 0 || slices.Contains([]string{"model", "hook", "server", "version"}, label) {
		return
	}
	values := []string{regexp.QuoteMeta(value)}
	if strings.HasSuffix(operator, "~") {
		values = strings.Split(value, "|")
	}
	for _, v := range values {
		if pattern := regexp.MustCompile("^(?:" + v + ")$"); !slices.ContainsFunc(l.Values, pattern.MatchString) {
			c.fail("the label %q of %s is never %q", label, m.Name, v)
		}
	}
}
