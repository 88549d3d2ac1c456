package metrics_test

import (
	"bufio"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sample is one line of a scrape, which is one series.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// family has the samples of one metric. A histogram has one for each bucket, one for its sum and one for its count.
type family []sample

var (
	sampleLine = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? (\S+)$`)
	oneLabel   = regexp.MustCompile(`([a-z_]+)=("(?:[^"\\]|\\.)*"),?`)
)

// parseFamilies reads Prometheus's text format.
func parseFamilies(t testing.TB, r io.Reader) map[string]family {
	t.Helper()
	families := make(map[string]family)
	current := "" // the metric whose type was last declared
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if declared, ok := strings.CutPrefix(line, "# TYPE "); ok {
			current, _, _ = strings.Cut(declared, " ")
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := sampleLine.FindStringSubmatch(line)
		if parts == nil || !strings.HasPrefix(parts[1], current) {
			t.Fatalf("no sample of %s: %q", current, line)
		}
		value, err := strconv.ParseFloat(parts[3], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s := sample{name: parts[1], labels: make(map[string]string), value: value}
		for _, label := range oneLabel.FindAllStringSubmatch(parts[2], -1) {
			if s.labels[label[1]], err = strconv.Unquote(label[2]); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		families[current] = append(families[current], s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return families
}

// allSeries counts the series of all families.
func allSeries(families map[string]family) int {
	n := 0
	for _, f := range families {
		n += len(f)
	}
	return n
}

// value returns the sum of a counter or gauge, or the count of a histogram, over the series with these labels (name,
// value, …).
func value(families map[string]family, name string, labels ...string) float64 {
	sum := 0.0
	for _, s := range families[name] {
		matches := s.name == name || s.name == name+"_count"
		for i := 0; i < len(labels); i += 2 {
			got, ok := s.labels[labels[i]]
			matches = matches && ok && got == labels[i+1]
		}
		if matches {
			sum += s.value
		}
	}
	return sum
}
