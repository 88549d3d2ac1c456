package docker

import (
	"io"
	"os"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
)

// A program that runs for long is talked to while it runs, and ends when nobody talks to it any more.
func TestProgramsReadTheirInput(t *testing.T) {
	f := setUp(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, told := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := f.engine.Run(t.Context(), f.space, sandbox.Command{
			Args: []string{"sh", "-c", "while read -r line; do echo got $line; done; echo end"},
			Env:  plainEnv, Stdin: read, Stdout: told,
		})
		told.Close()
		ended <- err
	}()
	answer := make([]byte, 64)
	for _, line := range []string{"one", "two"} {
		if _, err := io.WriteString(write, line+"\n"); err != nil {
			t.Fatal(err)
		}
		n, err := out.Read(answer)
		if err != nil || string(answer[:n]) != "got "+line+"\n" {
			t.Fatalf("%q, %v", answer[:n], err)
		}
	}
	write.Close()
	if rest, err := io.ReadAll(out); err != nil || string(rest) != "end\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
