//go:build !linux

package host

import (
	"context"
	"fmt"
	"runtime"

	"github.com/farhand/farhand/agent/sandbox"
)

// Engine rejects all commands: only Linux offers a way to find all processes that a program leaves behind.
type Engine struct{ name string }

// New returns an error. It wraps sandbox.ErrUnavailable unless the configuration is invalid.
func New(c Config) (*Engine, error) {
	if err := c.Program.check(); err != nil {
		return nil, err
	}
	return nil, Probe()
}

// runSupervisor does nothing: there are no supervisors on this system.
func runSupervisor() {}

// Probe returns why programs cannot be confined here without a container.
func Probe() error {
	return fmt.Errorf("%w: programs run only on Linux, not on %s", sandbox.ErrUnavailable, runtime.GOOS)
}

// Name returns the engine's name.
func (e *Engine) Name() string { return e.name }

// Run returns sandbox.ErrUnavailable.
func (e *Engine) Run(context.Context, sandbox.Workspace, sandbox.Command) (sandbox.Exit, error) {
	return sandbox.Exit{}, Probe()
}

// Release does nothing.
func (e *Engine) Release(context.Context, sandbox.Workspace) error { return nil }

// Close does nothing.
func (e *Engine) Close(context.Context) error { return nil }
