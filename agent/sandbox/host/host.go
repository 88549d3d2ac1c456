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
	"errors"
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
