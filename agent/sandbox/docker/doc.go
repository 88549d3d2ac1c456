// Package docker is the engine of the sandbox that runs programs in containers, through the API of Docker or of an
// engine that speaks it.
//
// A workspace has one container, made by its first command and used by those that follow. It has no network, a
// read-only root, no capabilities, and of the host only the folder of the workspace. Its first process, the holder,
// does nothing but read its standard input, which is a connection of this process: when the connection ends, however
// this process died, the holder ends, and with it everything in the container, which the engine then removes.
//
// No engine can kill what an exec left behind. So the holder counts the processes after each command, and a container
// with one too many is removed. docs/decisions/0039-containers.md says why.
package docker
