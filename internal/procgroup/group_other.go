//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package procgroup

import (
	"errors"
	"os/exec"
)

func lead(*exec.Cmd)      {}
func killGroup(int) error { return errors.ErrUnsupported }
func awaitEnd(int) error  { return errors.ErrUnsupported }
