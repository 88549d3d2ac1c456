package docker

import (
	"errors"

	"golang.org/x/sys/windows"
)

// isGone reports whether there is certainly no process with this id.
func isGone(pid int) bool {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	_ = windows.CloseHandle(process)
	return false
}
