package farhand

import (
	"strings"
	"testing"
)

func TestWeakTokens(t *testing.T) {
	t.Parallel()
	for token, weak := range map[string]bool{
		"":                                 true,
		"x":                                true,
		"secret":                           true,
		"0123456789abcde":                  true, // 15
		strings.Repeat("a", 64):            true,
		strings.Repeat("ab", 32):           true,
		strings.Repeat("letmein", 9):       true,
		"aaaaaaaaaaaaaaaaaaaaaaaab":        true,
		"fleet-test-token-0123456789":      false,
		"3f9a0c7be1d24586":                 false,
		"q0eVJYw5hYQeY0mXvQq3nq7T8Zr1Qk5V": false,
	} {
		if got := weakToken(token); got != weak {
			t.Errorf("%q: weak %v", token, got)
		}
	}
}
