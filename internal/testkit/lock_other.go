//go:build !unix

package testkit

// lockFile locks nothing on this system.
func lockFile(string) (unlock func(), ok bool) { return func() {}, true }
