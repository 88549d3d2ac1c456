// Command shm creates a segment of shared memory, writes to all of it, and leaves it behind.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 24<<20, unix.IPC_CREAT|0o600)
	if err == nil {
		var segment []byte
		if segment, err = unix.SysvShmAttach(id, 0, 0); err == nil {
			for i := range segment {
				segment[i] = 1
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
