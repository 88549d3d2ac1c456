//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package procgroup

import "golang.org/x/sys/unix"

// awaitLeader waits until the leader, a child, has ended, without reaping it.
func (m members) awaitLeader() error {
	queue, err := unix.Kqueue()
	if err != nil {
		return err
	}
	defer unix.Close(queue)
	unix.CloseOnExec(queue)
	changes, events := make([]unix.Kevent_t, 1), make([]unix.Kevent_t, 1)
	unix.SetKevent(&changes[0], int(m), unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	changes[0].Fflags = unix.NOTE_EXIT
	_, err = unix.Kevent(queue, changes, events, nil)
	for err == unix.EINTR { // adding it again changes nothing
		_, err = unix.Kevent(queue, changes, events, nil)
	}
	if err == nil && events[0].Flags&unix.EV_ERROR != 0 {
		err = unix.Errno(events[0].Data)
	}
	if err == unix.ESRCH { // the error for a child that has ended and was not reaped
		return nil
	}
	return err
}
