//go:build !linux

package host

import (
	"context"
	"fmt"
	"runtime"

	"github.com/farhand/farhand/agent/sandbox"
)

// Engine runs nothing here: only on Linux does it find what a program leaves behind.
type Engine struct{ name string }

// New returns an error, which wraps sandbox.ErrUnavailable unless the configuration is wrong.
func New(c Config) (*Engine, error) {
	if err := c.Program.check(); err != nil {
		return nil, err
	}
	return nil, Probe()
}

// runSupervisor does nothing: there are none.
func runSupervisor() {}

// Probe says why programs cannot be confined without a container here.
func Probe() error {
	return fmt.Errorf("%w: programs run on Linux only, this is %s", sandbox.ErrUnavailable, runtime.GOOS)
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
