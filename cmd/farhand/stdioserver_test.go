package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A server's lines come through, what it says beside them is logged, and nothing it started outlives it.
func TestStdioServer(t *testing.T) {
	t.Parallel()
	pid, log := filepath.Join(t.TempDir(), "pid"), &lockedBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	s, err := startStdioServer(nil, "sleep 300 & echo $! > "+pid+"; echo careful $FARHAND_TOKEN$WORD >&2; exec cat",
		append(os.Environ(), "FARHAND_TOKEN="+fleetToken, "WORD=people"), logger)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("a line\n")); err != nil {
		t.Error(err)
	}
	line := make([]byte, 7)
	if _, err := io.ReadFull(s, line); err != nil || !bytes.Equal(line, []byte("a line\n")) {
		t.Errorf("%q, %v", line, err)
	}
	eventually(t, waitLimit, "its error output is logged", func() bool {
		return strings.Contains(log.String(), "careful people")
	})
	if err := s.Close(); err != nil || s.exit() != "exit status 0" {
		t.Errorf("%v, %s", err, s.exit())
	}
	wantGone(t, pid)

	s, err = startStdioServer(nil, "sleep 300 & echo $! > "+pid+"; exit 3", os.Environ(), logger)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(line); n != 0 || !errors.Is(err, io.EOF) { // although the sleeper had its output
		t.Errorf("%d, %v", n, err)
	}
	if s.exit() != "exit status 3" {
		t.Error(s.exit())
	}
	wantGone(t, pid)
}

// A command is not started in a folder of this program that is gone.
func TestStdioServerWithoutAFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err == nil {
		err = os.Remove(here)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startStdioServer(nil, "cat", nil, nil); err == nil {
		t.Error("it has started")
	}
}

// wantGone waits until the process that a file names has ended.
func wantGone(t *testing.T, file string) {
	t.Helper()
	pid := readPID(file)
	if pid <= 1 {
		t.Fatalf("%s names no process", file)
	}
	eventually(t, waitLimit, "the process has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}
