package mcptest

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// census is how many goroutines of a pod have each stack.
type census map[string]int

// ofStack is what says a function of a stack, in the profile.
var ofStack = regexp.MustCompile(`(?m)^#\t0x[0-9a-f]+\t(\S+)\+0x`)

// idle are stacks that do not count: of the pool that handles frames, which keeps as many as ever ran at a time, up to
// a limit, and of connections that the balancer keeps open for the next request.
var idle = regexp.MustCompile(`ws\.\(\*stackPool\)\.get|Peek < net/http\.\(\*conn\)\.serve`)

// goroutines counts those of a pod that are not idle.
func (p *pod) goroutines(t testing.TB) census {
	t.Helper()
	text := request(t, http.MethodGet, p.profiles+"/debug/pprof/goroutine?debug=1", rootToken, "", http.StatusOK)
	c := make(census)
	for stack := range strings.SplitSeq(string(text), "\n\n") {
		var calls []string
		for _, call := range ofStack.FindAllStringSubmatch(stack, -1) {
			calls = append(calls, call[1])
		}
		name := strings.Join(calls, " < ")
		for line := range strings.Lines(stack) { // the first of a stack is: number @ addresses
			count, _, ok := strings.Cut(line, " @ ")
			if number, err := strconv.Atoi(count); ok && err == nil && !idle.MatchString(name) {
				c[name] += number
			}
		}
	}
	return c
}

func (c census) total() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

// grown says which stacks have more goroutines than before.
func (c census) grown(before census) (lines []string) {
	for _, stack := range slices.Sorted(maps.Keys(c)) {
		if c[stack] > before[stack] {
			lines = append(lines, strconv.Itoa(before[stack])+", then "+strconv.Itoa(c[stack])+": "+stack)
		}
	}
	return lines
}
