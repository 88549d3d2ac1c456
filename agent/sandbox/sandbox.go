// Package sandbox defines the engines that run programs of the gateway's own tools: on the host, confined by the
// kernel, or in a container.
//
// Tools call Engine. The packages below this one implement it.
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

// Mount is the path of the workspace in containers.
const Mount = "/workspace"

// Workspace is the folder of one agent session, the only folder that its tools use.
type Workspace struct {
	ID     string // letters and digits; unique in the fleet; does not reveal the user
	Dir    string // absolute path on this machine; it exists
	Tenant string // owner; engines divide their resources between tenants

	// UID and GID own the folder and run its programs. They are those of this process, unless that runs as root.
	UID, GID int

	MaxBytes int64 // disk usage of all its files; zero: no limit
	MaxFiles int   // files and folders; zero: no limit

	Share Share // disk quota of the tenant; nil: no quota
}

// Share is the disk quota of a tenant.
type Share interface {
	// Over returns an error that wraps ErrFull if more further bytes in the workspace exceed the tenant's quota. used
	// is the current usage of the workspace.
	Over(w Workspace, used Usage, more int64) error
}

// Command is one program to run.
type Command struct {
	Args []string // the program and its arguments; a program without a slash is looked up in PATH of Env
	Dir  string   // relative to the workspace, with slashes; empty: the workspace
	Env  []string // the whole environment, as "name=value"

	// Stdin is the program's input; nil: none. Run closes it.
	Stdin *os.File

	// Stdout and Stderr receive the output as it arrives, each from one goroutine. If one fails, the command ends.
	// Neither is called after Run has returned.
	Stdout, Stderr io.Writer

	Limits   Limits
	Elevated bool // run with the rights of the gateway's user; ErrNotElevated if unsupported
}

// Limits limits a command with all processes that it starts. Zero fields mean no limit.
type Limits struct {
	Memory    int64         // bytes; of all processes together if the engine can, otherwise of each
	Processes int           // processes and threads, concurrent
	CPU       time.Duration // of each process
	FileSize  int64         // bytes of one file that it writes
}

// Exit is how a program ended.
type Exit struct {
	Code     int    // 128 plus the signal if a signal ended it, as in a shell
	Signal   string // for example "killed"; empty: it ended by itself
	Duration time.Duration
}

// Engine runs programs. It is safe for concurrent use. An engine that depends on a service also has a method Down: see
// the function of that name.
type Engine interface {
	// Name returns the engine's name for operators: host, landlock or docker.
	Name() string

	// Run runs a command until it ends, and returns how it ended. A non-zero exit is not an error. When the command or
	// ctx ends, Run kills all processes that the command started before it returns, even those that tried to escape. If
	// ctx ends, the error is the cause of ctx. Run fails with ErrNoProgram if the program does not exist, and with
	// ErrUnavailable if the engine cannot run anything now.
	Run(ctx context.Context, w Workspace, c Command) (Exit, error)

	// Release releases the engine's resources for a workspace, such as a container. The docker engine also ends the
	// command that runs there; the host engine does not.
	Release(ctx context.Context, w Workspace) error

	// Close ends all programs and releases all resources. It waits for that until ctx ends. Later calls of Run fail.
	Close(ctx context.Context) error
}

// Down returns why an engine cannot run anything now, or nil, as of its last check. It does not block.
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
	ErrNotElevated = errors.New("sandbox: programs cannot run elevated here")
)

// Usage is the disk usage of a workspace.
type Usage struct {
	Bytes int64 // on the disk
	Files int   // including folders

	// Unseen is why part of it could not be counted; its size is then unknown. If nil, all was counted.
	Unseen error
}

// DiskSpace is space on a disk: what is free, or what is used.
type DiskSpace struct {
	Bytes int64
	Files int64 // zero or constant on file systems that create inodes on demand
}

// Reasons why a workspace cannot be measured, besides errors of the file system.
var (
	errTooMany = errors.New("it has more files and folders than can be counted")
	errTooDeep = fmt.Errorf("it has folders nested deeper than %d levels", maxDepth)
)

// maxDepth is the maximum depth of folders that are counted. Each level takes one descriptor.
const maxDepth = 100

// Full returns an error that wraps ErrFull and names the limit if the usage exceeds a limit of w; otherwise nil.
// Content that could not be counted also counts as too much.
func (u Usage) Full(w Workspace) error {
	switch {
	case errors.Is(u.Unseen, errTooMany):
		return fmt.Errorf("%w: it has more than %d files and folders, at most %d are allowed; remove some", ErrFull,
			u.Files-1, w.MaxFiles)
	case u.Unseen != nil:
		return fmt.Errorf("%w: part of it cannot be counted (%w); remove it, or make it readable", ErrFull, u.Unseen)
	case w.MaxBytes > 0 && u.Bytes > w.MaxBytes:
		return fmt.Errorf("%w: its files use %d KiB, at most %d KiB are allowed; remove some", ErrFull,
			u.Bytes>>10, w.MaxBytes>>10)
	case w.MaxFiles > 0 && u.Files > w.MaxFiles:
		return fmt.Errorf("%w: it has %d files and folders, at most %d are allowed; remove some", ErrFull, u.Files,
			w.MaxFiles)
	}
	return nil
}

// OverShare returns the result of w.Share.Over, or nil if there is no quota.
func (u Usage) OverShare(w Workspace, more int64) error {
	if w.Share == nil {
		return nil
	}
	return w.Share.Over(w, u, more)
}

// readStep is how many names of a folder are read at a time.
const readStep = 64

// Entries returns the entries of a folder, in no particular order. It holds only readStep of them in memory. Entries
// that are created or removed meanwhile may or may not be included. If an error occurs, it comes last.
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
