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

// tempPrefix is what names of folders for temporary files begin with.
const tempPrefix = ".tmp-"

// temp is the folder for temporary files of a supervisor's commands, in their workspace. It is kept from one command to
// the next one there, because to make and to remove one takes longer than to start a program.
type temp struct {
	workspace *os.Root // nil: there is no folder
	info      fs.FileInfo
	name      string
	uid       int
}

// prepare sees to it that there is an empty folder for a command, and returns its path.
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
			return "", fmt.Errorf("a folder for temporary files: %w", err)
		}
		t.info, t.uid = info, uid
	}
	return filepath.Join(r.Workspace, t.name), nil
}

// make makes another folder in place of the one that there is.
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

// pristine reports whether the folder is as it was made.
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

// clean removes what a command left in the folder, with the folder.
func (t *temp) clean() {
	if t.workspace != nil && !t.pristine() {
		t.remove()
	}
}

// remove removes the folder with all that is in it, also folders that their owner has locked.
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
	_ = sandbox.RemoveAll(in, t.name) // what is left counts, and its owner can remove it
}
