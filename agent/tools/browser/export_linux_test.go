//go:build linux

package browser

import (
	"strconv"

	"github.com/farhand/farhand/internal/share"
)

// UsersOf returns the processes whose profile is a folder or below it.
func UsersOf(dir string) (pids []int) {
	for pid, rest := range belowOf(dir) {
		if firstName(rest) == "" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillUser kills a process if its profile is a folder or below it, and reports whether it was so.
func KillUser(pid int, dir string) bool { return killUser(pid, dir) }

// HoldReading takes the memory of so many snapshots for the users of a tenant, as far as it is free, and returns how to
// release it.
func HoldReading(b *Browsers, tenant string, users int) (release func()) {
	var held []*share.Grant
	for user := range users {
		owner := share.Owner{Tenant: tenant, Identity: strconv.Itoa(user)}
		if g := b.reading.TakeFree(owner, maxReading); g != nil {
			held = append(held, g)
		}
	}
	return func() {
		for _, g := range held {
			g.Release()
		}
	}
}
