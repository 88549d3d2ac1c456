// Package host runs programs on this machine, without containers. It is an engine of package sandbox in two forms: one
// that gives programs what any program of their user may do, and one that the kernel confines to the workspace
// (Landlock and seccomp), the weaker sandbox.
//
// Programs are not children of the gateway. For each command there is a supervisor, which is the gateway's own program
// started again: its main calls Main before anything else, which recognises that and runs the supervisor. The
// supervisor becomes the parent of whatever its command leaves behind, so that it finds and kills all of it, also when
// the gateway is gone. What packages do while they are initialised, they do in supervisors, too.
package host

import (
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

// Program is this program, which can be started again as a supervisor: Main returns it. The zero value is a program
// that cannot, because its main does not call Main.
type Program struct{ supervises bool }

// Main runs a supervisor, and does not return, if an engine has started this program as one. Else it returns what New
// needs. The main of a program calls it before anything else.
func Main() Program {
	runSupervisor()
	return Program{supervises: true}
}

// check says what is wrong with a program that engines cannot start as a supervisor.
func (p Program) check() error {
	if p.supervises {
		return nil
	}
	return errors.New("this program cannot run other programs: its main has to call host.Main before anything else, " +
		"and to hand over what that returns (farhand.WithProgram, or Program of host.Config)")
}

// Config describes an engine. Without Landlock it is the form without confinement.
type Config struct {
	Program Program // required

	// Landlock confines programs: they reach no file outside their workspace but system programs and libraries, and
	// no network.
	Landlock bool

	// Idle is how many supervisors wait for their next command at most, each for IdleTimeout. Default: 2, one minute.
	Idle        int
	IdleTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Idle == 0 {
		c.Idle = 2
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = time.Minute
	}
	return c
}

// maxMessage bounds a message between gateway and supervisor, in bytes. The kernel takes no longer arguments.
const maxMessage = 8 << 20

// request asks a supervisor to run a command. The folder it runs in, the workspace and the ends of its output travel
// beside it as descriptors, in the order of the constants below.
type request struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`

	Workspace string `json:"workspace"` // for the program's own eyes: TMPDIR
	Landlock  bool   `json:"landlock"`
	Drop      bool   `json:"drop"` // to the user and group below
	UID       int    `json:"uid"`
	GID       int    `json:"gid"`
	Gateway   int    `json:"gateway"` // its process, which the command may not kill

	Memory    int64         `json:"memory"`
	Processes int           `json:"processes"`
	CPU       time.Duration `json:"cpu"`
	FileSize  int64         `json:"file_size"`

	Stdin bool `json:"stdin"` // there is a descriptor that the command reads
}

// The descriptors of a request. Only some have the last one.
const (
	fdDir = iota
	fdWorkspace
	fdStdout
	fdStderr
	fdCount
	fdStdin = fdCount
)

// stdin returns how many descriptors the request has besides those of all requests.
func (r *request) stdin() int {
	if r.Stdin {
		return 1
	}
	return 0
}

// answer says how a command ended, or why there is none.
type answer struct {
	Code      int    `json:"code"`
	Signal    string `json:"signal,omitempty"`
	NoProgram bool   `json:"no_program,omitempty"`
	Error     string `json:"error,omitempty"`
}

// frame returns a message with its length in front.
func frame(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("the command and its environment have %d bytes; at most %d are possible",
			len(body), maxMessage)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// readFrame reads a message. io.EOF: there is none any more.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return errors.New("a message that is too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
