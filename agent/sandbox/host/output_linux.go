package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/farhand/farhand/agent/sandbox"
)

// outputBuffer is how many bytes of each stream are read at a time. There is no other buffer: a program that writes
// faster than its output is read blocks.
const outputBuffer = 32 << 10

// output copies the output of a command to its writers.
type output struct {
	readers, writers []*os.File
	done             sync.WaitGroup
}

// startOutput creates the pipes of a command. If a writer fails, startOutput calls cancel, which ends the command.
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
		// Programs block when the pipe is full. Most treat EAGAIN as the end of their output.
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

// copyOutput copies until all write ends are closed, or dst fails.
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

// finish waits until all output was copied. After an error of the supervisor, surviving processes may still hold the
// pipes, so finish closes them and drops further output.
func (o *output) finish(err error) {
	closeAll(o.writers)
	if err != nil {
		closeAll(o.readers)
	}
	o.done.Wait()
	closeAll(o.readers)
}

// tempPrefix is the name prefix of temporary folders.
const tempPrefix = ".tmp-"

// temp is the temporary folder of a supervisor's commands, in their workspace. It is reused by the next command there,
// because creating and removing a folder takes longer than starting a program.
type temp struct {
	workspace *os.Root // nil: no folder
	info      fs.FileInfo
	name      string
	uid       int
}

// prepare ensures an empty temporary folder for a command, and returns its path.
func (t *temp) prepare(r request, workspace *os.File) (string, error) {
	info, err := workspace.Stat()
	if err != nil {
		return "", err
	}
	uid := os.Geteuid()
	if r.Drop {
		uid = r.UID
	}
	if t.workspace == nil || t.uid != uid || !os.SameFile(info, t.info) || !t.pristine() {
		if err := t.make(r, workspace); err != nil {
			return "", fmt.Errorf("create temporary folder: %w", err)
		}
		t.info, t.uid = info, uid
	}
	return filepath.Join(r.Workspace, t.name), nil
}

// make removes the current folder and creates a new one.
func (t *temp) make(r request, workspace *os.File) error {
	t.remove()
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", workspace.Fd()))
	if err != nil {
		return err
	}
	t.workspace, t.name = root, tempPrefix+rand.Text()
	if err := root.Mkdir(t.name, 0o700); err != nil {
		root.Close()
		t.workspace = nil
		return err
	}
	if r.Drop {
		return root.Lchown(t.name, r.UID, r.GID)
	}
	return nil
}

// pristine reports whether the folder is still empty, with its original mode and owner.
func (t *temp) pristine() bool {
	f, err := t.workspace.OpenFile(t.name, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() != 0o700 || int(info.Sys().(*syscall.Stat_t).Uid) != t.uid {
		return false
	}
	_, err = f.Readdirnames(1)
	return err == io.EOF
}

// clean removes the folder if a command changed it or left files in it.
func (t *temp) clean() {
	if t.workspace != nil && !t.pristine() {
		t.remove()
	}
}

// remove removes the folder with its content, including folders without permissions.
func (t *temp) remove() {
	if t.workspace == nil {
		return
	}
	defer func() {
		t.workspace.Close()
		t.workspace = nil
	}()
	in, err := t.workspace.Open(".")
	if err != nil {
		return
	}
	defer in.Close()
	_ = sandbox.RemoveAll(in, t.name) // remaining files count in the quota, and their owner can remove them
}
