// Package host runs programs on this machine, without containers. It is an engine of package sandbox in two forms: one
// that gives programs what any program of their user may do, and one that the kernel confines to the workspace
// (Landlock and seccomp), the weaker sandbox.
//
// Programs are not children of the gateway. For each command there is a supervisor, which is the gateway's own program
// started again: this package's init recognises that and runs the supervisor in place of main. The supervisor becomes
// the parent of whatever its command leaves behind, so that it finds and kills all of it, also when the gateway is
// gone. What a package does while it is initialised before this one, it does in supervisors, too.
package host

import "time"

// The names of the engine's two forms.
const (
	Name         = "host"
	NameLandlock = "landlock"
)

// Config describes an engine. The zero value is the form without confinement.
type Config struct {
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
