package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry/textsafe"
)

// unseenText is what a device may write to a log or a terminal.
const unseenText = "a\u202eb\U000E0041\u200bc\u00ad\u3164\ufe0f\x1b[2J\u009b1md\u0085"

func TestLogLinesAreLegible(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		newLogger(&out, slog.LevelInfo, format).With("with", unseenText).WithGroup("g").Info("said "+unseenText,
			"text", unseenText, "error", errors.New(unseenText), "list", []string{unseenText},
			slog.Group("in", "side", unseenText),
			"two\nlines", "first\nsecond")
		line := strings.TrimSuffix(out.String(), "\n")
		if textsafe.Hides(line) || strings.Contains(line, "\n") ||
			strings.Count(strings.ReplaceAll(line, `\u202e`, "\uFFFD"), "a\uFFFDb") < 5 {
			t.Errorf("%s: %+q", format, line)
		}
	}
}

func TestTerminalsAreLegible(t *testing.T) {
	for _, got := range []string{printable(unseenText + "\n\tä"), oneLine("x\ny "+unseenText, 60)} {
		if textsafe.Hides(got) || !strings.Contains(got, "a\uFFFDb\uFFFD\uFFFDc\uFFFD") {
			t.Errorf("shown: %+q", got)
		}
	}
	if got := oneLine("می\u200cخواهم 👨\u200d👩", 60); got != "می\u200cخواهم 👨\u200d👩" {
		t.Errorf("one line: %+q", got)
	}
}
