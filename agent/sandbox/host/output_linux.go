package host

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"
)

// outputBuffer is how many bytes of each stream are read at a time. Nothing else is buffered: a program that writes
// faster than its output is taken waits.
const outputBuffer = 32 << 10

// output takes what a command writes to where it belongs.
type output struct {
	readers, writers []*os.File
	done             sync.WaitGroup
}

// startOutput makes the pipes of a command. An error of a writer ends the command by cancel.
func startOutput(stdout, stderr io.Writer, cancel context.CancelCauseFunc) (*output, error) {
	o := &output{}
	for _, w := range []io.Writer{stdout, stderr} { // the order of fdStdout and fdStderr
		pr, pw, err := os.Pipe()
		if err != nil {
			closeAll(o.readers)
			closeAll(o.writers)
			o.done.Wait()
			return nil, err
		}
		o.readers, o.writers = append(o.readers, pr), append(o.writers, pw)
		// Programs wait when the pipe is full. Most take an error in place of that for the end.
		if err := syscall.SetNonblock(int(pw.Fd()), false); err != nil {
			cancel(err)
		}
		if w == nil {
			w = io.Discard
		}
		o.done.Go(func() {
			if err := copyOutput(w, pr); err != nil {
				cancel(err)
			}
		})
	}
	return o, nil
}

// copyOutput copies until nobody can write any more, or dst fails.
func copyOutput(dst io.Writer, src *os.File) error {
	buffer := make([]byte, outputBuffer)
	for {
		n, err := src.Read(buffer)
		if n > 0 {
			if _, err := dst.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// finish waits until all output was taken. After an error of the supervisor, processes may live that hold the pipes:
// then what they write is not waited for.
func (o *output) finish(err error) {
	closeAll(o.writers)
	if err != nil {
		closeAll(o.readers)
	}
	o.done.Wait()
	closeAll(o.readers)
}
