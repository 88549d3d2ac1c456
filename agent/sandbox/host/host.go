// Package host runs programs on this machine, without containers. It is an engine of package sandbox in two forms. The
// first gives programs all rights of their user. The second confines them to the workspace with Landlock and seccomp;
// it is the weaker sandbox.
//
// Programs are not children of the gateway. Each command has a supervisor, which is the gateway's own program started
// again. Its main calls Main before anything else, which detects this and runs the supervisor. The supervisor adopts
// all processes that its command leaves behind, so that it can find and kill them, even when the gateway is gone.
// Package initialisation also runs in supervisors.
package host

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The names of the engine's two forms.
const (
	Name         = "host"
	NameLandlock = "landlock"
)

// Program states that this program can be started again as a supervisor. Main returns it. The zero value is rejected:
// the program's main did not call Main.
type Program struct{ supervises bool }

// Main runs a supervisor and does not return if an engine has started this program as one. Otherwise it returns the
// value that New needs. A program's main must call it before anything else.
func Main() Program {
	runSupervisor()
	return Program{supervises: true}
}

// check returns an error if engines cannot start the program as a supervisor.
func (p Program) check() error {
	if p.supervises {
		return nil
	}
	return errors.New("this program cannot run other programs: main must call host.Main first " +
		"and pass its result to farhand.WithProgram (or Config.Program)")
}

// Config configures an engine. Without Landlock, programs are not confined.
type Config struct {
	Program Program // required

	// Landlock confines programs. Outside their workspace they can only read system programs, libraries and some public
	// files of /etc, and use a few devices. They have no network.
	Landlock bool

	// Idle is the maximum number of idle supervisors, each kept for IdleTimeout. Default: 2, one minute.
	Idle        int
	IdleTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Idle = cmp.Or(c.Idle, 2)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	return c
}

// maxMessage bounds a message between gateway and supervisor, in bytes. The kernel accepts no longer arguments.
const maxMessage = 8 << 20

// request asks a supervisor to run a command. File descriptors accompany it, in the order of the constants below: the
// working directory, the workspace and the ends of its output.
type request struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`

	Workspace string `json:"workspace"` // path for the program: TMPDIR
	Landlock  bool   `json:"landlock"`
	Drop      bool   `json:"drop"` // switch to UID and GID
	UID       int    `json:"uid"`
	GID       int    `json:"gid"`
	Gateway   int    `json:"gateway"` // pid of the gateway, which the command may not kill

	Memory    int64         `json:"memory"`
	Processes int           `json:"processes"`
	CPU       time.Duration `json:"cpu"`
	FileSize  int64         `json:"file_size"`

	Stdin bool `json:"stdin"` // a descriptor for stdin is passed
}

// The descriptors of a request. fdStdin is optional.
const (
	fdDir = iota
	fdWorkspace
	fdStdout
	fdStderr
	fdCount
	fdStdin = fdCount
)

// stdin returns the number of optional descriptors of the request.
func (r *request) stdin() int {
	if r.Stdin {
		return 1
	}
	return 0
}

// answer is how a command ended, or why it did not run.
type answer struct {
	Code      int    `json:"code"`
	Signal    string `json:"signal,omitempty"`
	NoProgram bool   `json:"no_program,omitempty"`
	Error     string `json:"error,omitempty"`
}

// frame returns a message, prefixed with its length.
func frame(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("the command and its environment have %d bytes; at most %d are allowed",
			len(body), maxMessage)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// readFrame reads a message. It returns io.EOF after the last one.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return errors.New("the message is too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
