package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// nearest returns what was probably meant by a name that does not exist, or nothing. A third of the letters may differ,
// rounded up, and three at most.
func nearest(name string, known []string) string {
	best, least := "", min((len(name)+2)/3, 3)+1
	for _, k := range known {
		if k == name {
			continue // it exists elsewhere, and was not meant as another
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// didYouMean is a sentence with the nearest known name, to be put behind an error; empty when nothing comes near.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return " Did you mean " + near + "?"
	}
	return ""
}

// plural counts things: 1 session, 2 sessions.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// invocation is how this program was started, so that printed commands can be typed as they are.
func invocation(args []string) string {
	if len(args) == 0 {
		return "farhand"
	}
	program := args[0]
	// `go run` builds into a folder of its own below the one for temporary files and removes it afterwards.
	if slices.Contains(strings.Split(filepath.ToSlash(program), "/"), "exe") && strings.Contains(program, "go-build") {
		return "go run ./cmd/farhand"
	}
	if strings.ContainsRune(program, os.PathSeparator) {
		return program
	}
	return filepath.Base(program)
}
