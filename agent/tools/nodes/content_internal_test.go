package nodes

import (
	"strings"
	"testing"
	"time"
)

func FuzzDuration(f *testing.F) {
	for _, text := range []string{`"10s"`, `10`, `"1m30s"`, `"-1s"`, `1e300`, `"NaN"`, `""`, `"1h"`,
		`" 5 "`, `"0x1p4"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := readDuration([]byte(text)); err == nil && (d < time.Second || d > 2*time.Minute) {
			t.Errorf("%q is %v", text, d)
		}
	})
}

func FuzzLines(f *testing.F) {
	for _, text := range []string{"{}", "{}\n[]", "\n\r\n{\"a\":1}", "", "{", "{}\r{}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if checkLines(text) != nil {
			return
		}
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); line != "" && (line[0] != '{' || line[len(line)-1] != '}') {
				t.Errorf("%q has the line %q", text, line)
			}
		}
	})
}
