package openclaw

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// warnRunning adds a warning for each sign that the gateway of an installation still runs. What it writes meanwhile may
// be missing in the import. The signs also stay when a gateway was killed, and its process may be in a container, so
// they do not prove it.
func (in *Installation) warnRunning(dir string) {
	for _, path := range lockFiles(dir) {
		in.warn("the gateway of this installation may still run%s: its lock file is %s", ownerOf(path), path)
	}
	// SQLite removes the file when the last program closes the database (https://sqlite.org/walformat.html).
	if shared := databasePath(dir) + "-shm"; exists(shared) {
		in.warn("a program may still have the database open: there is %s", shared)
	}
}

func (in *Installation) warn(format string, args ...any) {
	in.Warnings = append(in.Warnings, fmt.Sprintf(format, args...)+
		". Stop the gateway and import again, or nodes that it changes are missing. If it does not run, ignore this.")
}

// lockFiles returns the lock files of a gateway, which it removes when it stops (its src/infra/gateway-lock.ts). They
// are in the state directory since 2026.7. Earlier versions have one for each configuration, in the system's directory
// for temporary files.
func lockFiles(dir string) []string {
	found, _ := fs.Glob(os.DirFS(dir), "tmp/openclaw*/gateway.*.lock") // the pattern is valid
	for i := range found {
		found[i] = filepath.Join(dir, filepath.FromSlash(found[i]))
	}
	absolute, err := filepath.Abs(filepath.Join(dir, configFile))
	if err != nil {
		return found
	}
	name := "openclaw"
	if uid := os.Getuid(); uid >= 0 { // not on Windows
		name += "-" + strconv.Itoa(uid)
	}
	sum := sha256.Sum256([]byte(absolute))
	path := filepath.Join(os.TempDir(), name, "gateway."+hex.EncodeToString(sum[:4])+".lock")
	if exists(path) {
		found = append(found, path)
	}
	return found
}

// maxLock is the limit of what is read of a lock file, in bytes.
const maxLock = 64 << 10

// ownerOf returns the process that a lock file names, for a sentence; empty if it names none.
func ownerOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it is only read
	text, err := io.ReadAll(io.LimitReader(file, maxLock))
	var lock struct {
		PID int `json:"pid"`
	}
	if err != nil || json.Unmarshal(text, &lock) != nil || lock.PID <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", lock.PID)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
