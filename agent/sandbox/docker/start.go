package docker

import (
	"fmt"
	"io"
	"strings"

	"github.com/farhand/farhand/agent/sandbox"
)

// Engines write into the output of a program why they could not start it.
const (
	startPrefix   = "OCI runtime exec failed: "
	maxStartError = 4 << 10 // bytes of such a text
)

// startWriter holds back output that looks like the reason why a program could not start, until it is known whether it
// did. Everything else passes at once.
type startWriter struct {
	to     io.Writer
	held   []byte
	passed bool
}

func (w *startWriter) Write(p []byte) (int, error) {
	if w.passed {
		return w.to.Write(p)
	}
	w.held = append(w.held, p...)
	n := min(len(w.held), len(startPrefix))
	if string(w.held[:n]) == startPrefix[:n] && len(w.held) <= maxStartError {
		return len(p), nil
	}
	return len(p), w.pass()
}

// pass passes on what is held back, and from now on everything.
func (w *startWriter) pass() error {
	w.passed = true
	if len(w.held) == 0 {
		return nil
	}
	held := w.held
	w.held = nil
	n, err := w.to.Write(held)
	if err == nil && n < len(held) {
		err = io.ErrShortWrite
	}
	return err
}

// startError returns why the program did not start.
func (w *startWriter) startError() error {
	text := strings.TrimSpace(strings.TrimPrefix(string(w.held), startPrefix))
	for _, missing := range []string{
		"executable file not found", "no such file or directory", "permission denied", "exec format error",
		"is a directory",
	} {
		if strings.Contains(text, missing) {
			return fmt.Errorf("%w: %s", sandbox.ErrNoProgram, text)
		}
	}
	return fmt.Errorf("%w: start the program: %s", sandbox.ErrUnavailable, text)
}
