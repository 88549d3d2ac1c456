// Package sandbox says what runs the programs of the gateway's own tools, and where: on the host, with the kernel's own
// means of confinement, or in a container.
//
// Engine is what tools call. The packages below this one are its implementations.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"
)

// Mount is where containers see their workspace.
const Mount = "/workspace"

// Workspace is the folder of one agent session, the only one its tools know.
type Workspace struct {
	ID     string // letters and digits; unique in the fleet, and says nothing of who uses it
	Dir    string // absolute path of the folder on this machine; it is there
	Tenant string // whose it is, for engines that share out what they keep

	// UID and GID own the folder and run its programs. Both are those of this process unless that is root.
	UID, GID int

	MaxBytes int64 // that all its files may take on the disk; zero: no bound
	MaxFiles int   // and folders; zero: no bound

	Share Share // of the disk; nil: the workspace may have all
}

// Share is what a tenant may have of the disk.
type Share interface {
	// Over returns an error that wraps ErrFull if the tenant of a workspace would have more than its share with so many
	// bytes more. used is what the workspace takes now.
	Over(w Workspace, used Usage, more int64) error
}

// Command is one program to run.
type Command struct {
	Args []string // the program and its arguments; a program without a slash is looked for in PATH of Env
	Dir  string   // below the workspace, with slashes; empty: the workspace itself
	Env  []string // all the program knows of its environment, as "name=value"

	// Stdin is what the program reads; nil: nothing. Run closes it.
	Stdin *os.File

	// Stdout and Stderr get what the program writes as it comes, each from one goroutine. An error of theirs ends the
	// command. Neither is called after Run has returned.
	Stdout, Stderr io.Writer

	Limits   Limits
	Elevated bool // with the rights of the gateway's own user; ErrNotElevated if the engine knows of none
}

// Limits bounds a command with everything it starts. Zero fields set no bound.
type Limits struct {
	Memory    int64         // bytes, of all processes together where the engine can, else of each
	Processes int           // and threads, at once
	CPU       time.Duration // of each process
	FileSize  int64         // bytes of one file that it writes
}

// Exit is how a program ended.
type Exit struct {
	Code     int    // 128 and the signal if one ended it, as in a shell
	Signal   string // as in "killed"; empty: it ended by itself
	Duration time.Duration
}

// Engine runs programs. It is safe for concurrent use. One that depends on others, who may be away, also has Down: see
// the function of that name.
type Engine interface {
	// Name is what people call it: host, landlock or docker.
	Name() string

	// Run runs a command to its end and returns how it ended: a program that fails is no error. When ctx ends, or the
	// command does, all that the command started is killed, whatever it did to get away, before Run returns; in the
	// first case the error is the cause of ctx. ErrNoProgram: there is no such program. ErrUnavailable: the engine
	// cannot run anything now.
	Run(ctx context.Context, w Workspace, c Command) (Exit, error)

	// Release ends what the engine keeps for a workspace, such as a container. Nothing runs there any more.
	Release(ctx context.Context, w Workspace) error

	// Close ends everything that the engine runs and keeps, and waits for it. Run fails from then on.
	Close(ctx context.Context) error
}

// Down returns why an engine cannot run anything now, as far as is known, nil if it can. It asks and waits for nothing.
func Down(e Engine) error {
	if d, ok := e.(interface{ Down() error }); ok {
		return d.Down()
	}
	return nil
}

// Errors of engines.
var (
	ErrUnavailable = errors.New("sandbox: the engine is not available")
	ErrNoProgram   = errors.New("sandbox: no such program")
	ErrFull        = errors.New("the workspace is full")
	ErrNotElevated = errors.New("sandbox: programs cannot run with more rights here")
)

// Usage says what a workspace takes.
type Usage struct {
	Bytes int64 // on the disk
	Files int   // folders included

	// Unseen is why some of it could not be counted, so that it may hold anything; nil: all was counted.
	Unseen error
}

// Room says what is free on a disk.
type Room struct {
	Bytes int64
	Files int64 // zero, or always the same, on file systems that make room for files as they need it
}

// Reasons why a workspace cannot be counted, beside errors of the file system.
var (
	errTooMany = errors.New("it has more files and folders than are counted")
	errTooDeep = fmt.Errorf("it has folders nested deeper than %d", maxDepth)
)

// maxDepth is how deep folders are counted. Each level takes one descriptor while its files are counted.
const maxDepth = 100

// Full returns an error that wraps ErrFull and names the limit if w has reached one; nil if it has room. What could not
// be counted counts as too much.
func (u Usage) Full(w Workspace) error {
	switch {
	case u.Unseen != nil:
		return fmt.Errorf("%w: not all of it can be counted (%w); remove that, or make it readable", ErrFull, u.Unseen)
	case w.MaxBytes > 0 && u.Bytes > w.MaxBytes:
		return fmt.Errorf("%w: its files take %d KiB on the disk, at most %d KiB are allowed; remove some", ErrFull,
			u.Bytes>>10, w.MaxBytes>>10)
	case w.MaxFiles > 0 && u.Files > w.MaxFiles:
		return fmt.Errorf("%w: it has %d files and folders, at most %d are allowed; remove some", ErrFull, u.Files,
			w.MaxFiles)
	}
	return nil
}

// OverShare returns what the tenant's share says, nil if it has none.
func (u Usage) OverShare(w Workspace, more int64) error {
	if w.Share == nil {
		return nil
	}
	return w.Share.Over(w, u, more)
}

// readStep is how many names are read of a folder at a time.
const readStep = 64

// Entries returns what is in a folder, in no order. However many names it has, few of them are in memory at a time.
// What is removed or made meanwhile may or may not be among them. An error is the last of it.
func Entries(dir string) iter.Seq2[os.DirEntry, error] {
	return func(yield func(os.DirEntry, error) bool) {
		f, err := os.Open(dir)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close() //nolint:errcheck // it was only read
		for {
			entries, err := f.ReadDir(readStep)
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
