package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/farhand/farhand/registry/legible"
)

// newLogger returns the logger of a server. In format auto it is text on a terminal and JSON elsewhere.
func newLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "text" || format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(legibleLines{w}, opts))
	}
	return slog.New(slog.NewJSONHandler(legibleLines{w}, opts))
}

// legibleLines writes the lines of a log. They may quote devices, so what a terminal would act on or hide is made
// visible.
type legibleLines struct{ w io.Writer }

// Write implements io.Writer.
func (l legibleLines) Write(line []byte) (int, error) {
	if _, err := io.WriteString(l.w, legible.Expose(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// legibleOn returns w itself, or if it is a terminal, what writes to it without what a terminal would act on or hide:
// into a file or a pipe goes byte for byte what a gateway or a device has said.
func legibleOn(w io.Writer) io.Writer {
	if isTerminal(w) {
		return legibleLines{w}
	}
	return w
}

// isTerminal reports whether a person is likely to read what is written to w.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
