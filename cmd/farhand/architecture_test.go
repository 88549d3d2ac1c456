package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// modulePath is the import path every room starts with.
const modulePath = "github.com/farhand/farhand/"

// arrows are the only imports allowed between rooms. cmd may know everyone; the device SDK knows nobody.
var arrows = map[string][]string{
	"api":        {"agent", "registry"},
	"ws":         {"agent", "registry"},
	"ws/client":  {},
	"agent":      {"registry"},
	"redisstore": {"registry"},
	"registry":   {},
	"cmd":        {"api", "ws", "ws/client", "agent", "redisstore", "registry"},
}

// room returns the room a package belongs to.
func room(pkg string) string {
	path, ok := strings.CutPrefix(pkg, modulePath)
	if !ok {
		return ""
	}
	if strings.HasPrefix(path, "ws/client") {
		return "ws/client"
	}
	top, _, _ := strings.Cut(path, "/")
	return top
}

func TestImportsFollowTheArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", modulePath+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := room(pkg.ImportPath)
		allowed, known := arrows[from]
		if !known {
			t.Errorf("%s lives in no room of the plan", pkg.ImportPath)
			continue
		}
		seen++
		for _, imported := range pkg.Imports {
			if to := room(imported); to != "" && to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may not know %s", pkg.ImportPath, imported, from, to)
			}
		}
	}
	if seen < len(arrows) {
		t.Errorf("only %d packages seen", seen)
	}
}
