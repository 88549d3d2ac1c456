//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd && !windows

package procgroup

import (
	"errors"
	"os/exec"
)

type members struct{}

func lead(*exec.Cmd)             {}
func adopt(int) (members, error) { return members{}, nil }

func (members) kill() error        { return errors.ErrUnsupported }
func (members) awaitLeader() error { return errors.ErrUnsupported }
func (members) close()             {}
