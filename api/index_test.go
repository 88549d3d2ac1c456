package api

import (
	"net/http"
	"testing"
)

// Only browsers prefer HTML. All that programs send by default gets JSON.
func TestPrefersHTML(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8":                     true, // Firefox, Safari
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8,a/b;v=b3": true, // Chromium
		"text/*":                                true,
		"text/html;q=0.2":                       true,
		"":                                      false,
		"*/*":                                   false, // curl, Python
		"application/json, text/plain, */*":     false, // axios
		"application/json;q=0.9, text/html;q=0": false,
		"text/html, application/json":           false,
		"text/html;q=0.5, */*":                  false,
		"text/html;q=NaN, */*;q=2":              false,
		";;, text/html;q=,":                     false,
	} {
		if got := prefersHTML(http.Header{"Accept": {accept}}); got != want {
			t.Errorf("%q: %t", accept, got)
		}
	}
}
