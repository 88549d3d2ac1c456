package main

import "runtime/debug"

// release is set by the build of a release: -ldflags "-X main.release=v1.2.3".
var release = ""

// version returns the release, else what the Go toolchain recorded about the build.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
