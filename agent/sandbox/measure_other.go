//go:build !linux && !darwin

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
)

// Free fails: free space is not supported on this system.
func Free(Workspace) (DiskSpace, error) { return DiskSpace{}, errors.ErrUnsupported }

// Disk fails: free space is not supported on this system.
func Disk(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }

// Measure fails: measuring is not supported on this system.
func Measure(Workspace, <-chan struct{}) (Usage, error) { return Usage{}, errors.ErrUnsupported }

// RemoveAll removes a file, or a folder with its content, from the folder in.
func RemoveAll(in *os.File, name string) error { return os.RemoveAll(filepath.Join(in.Name(), name)) }

// Unlock has no effect on this system.
func Unlock(string) error { return nil }
