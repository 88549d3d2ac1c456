package files

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/registry/legible"
)

const (
	maxPath = 4095 // bytes, of Linux and of most others
	maxName = 255

	// tempPrefix begins the names of files that are being written. Nobody else may use them.
	tempPrefix = ".farhand-"
)

// place is a path that may be looked for in a workspace.
type place struct {
	folders []string
	name    string
}

// String returns the path in its shortest form.
func (p place) String() string {
	return strings.Join(append(p.folders[:len(p.folders):len(p.folders)], p.name), "/")
}

// parsePath says what a path means. It takes plain relative paths only: what else a path may be written as is one more
// way to mean another file than the one that a person was shown.
func parsePath(path string) (p place, err error) {
	switch {
	case path == "":
		return p, refuse("The path is empty. Give one relative to the workspace, as notes/today.md.")
	case len(path) > maxPath:
		return p, refuse("The path has %d bytes; at most %d are possible.", len(path), maxPath)
	case !utf8.ValidString(path), strings.ContainsFunc(path, unicode.IsControl), legible.Hides(path):
		return p, refuse("The path has characters that nobody sees, such as controls. Use visible ones.")
	case strings.Contains(path, `\`):
		return p, refuse(`The path has a backslash. Folders are separated by "/".`)
	case path[0] == '/':
		return p, refuse("The path %q is absolute. Give one relative to the workspace, as notes/today.md.", path)
	case path == "~" || strings.HasPrefix(path, "~/"):
		return p, refuse("There is no home folder here. Give a path relative to the workspace, as notes/today.md.")
	case strings.HasSuffix(path, "/"):
		return p, refuse("The path %q is that of a folder. Give that of a file.", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			return p, refuse("The path %q leads upwards. Write it without \"..\".", path)
		case len(name) > maxName:
			return p, refuse("The path has a name of %d bytes; at most %d are possible.", len(name), maxName)
		case len(name) >= len(tempPrefix) && strings.EqualFold(name[:len(tempPrefix)], tempPrefix):
			return p, refuse("Names that begin with %q are the gateway's own.", tempPrefix)
		default:
			p.folders = append(p.folders, name)
		}
	}
	last := len(p.folders) - 1
	if last < 0 || strings.HasSuffix(path, "/.") {
		return p, refuse("The path %q is that of a folder. Give that of a file.", path)
	}
	p.folders, p.name = p.folders[:last], p.folders[last]
	return p, nil
}
