package procgroup

import "golang.org/x/sys/unix"

// awaitLeader waits until the leader, a child, has ended, without reaping it.
func (m members) awaitLeader() error {
	for {
		err := unix.Waitid(unix.P_PID, int(m), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
