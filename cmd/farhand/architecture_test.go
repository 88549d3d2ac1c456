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

// modulePath is the import path of the root package; those of all others start with it.
const modulePath = "github.com/farhand/farhand"

// root is the room of the root package, which wires the others.
const root = "."

// arrows are the only imports allowed between rooms. A package belongs to the room with the longest name that its path
// starts with. cmd may know everyone; the device SDK knows nobody.
var arrows = map[string][]string{
	"internal":              {},
	"internal/metrics":      {"api", "ws", "agent", "redisstore", "redisstore/bus", "registry", "registry/routing"},
	"registry":              {"internal"},
	"registry/routing":      {"registry", "internal"},
	"registry/memory":       {"registry", "internal"},
	"registry/registrytest": {"registry", "registry/routing", "internal"},
	"redisstore":            {"registry", "internal", "redisstore/bus", "redisstore/internal", "redisstore/redistest"},
	"redisstore/bus":        {"registry", "internal", "redisstore/internal"},
	"redisstore/internal":   {"registry"},
	"redisstore/redistest":  {},
	"agent":                 {"registry", "internal"},
	"api":                   {"agent", "registry", "internal"},
	"ws":                    {"agent", "registry", "registry/routing", "internal"},
	"ws/client":             {},
	root:                    {"api", "ws", "agent", "redisstore", "registry", "registry/routing", "registry/memory", "internal", "internal/metrics"},
	"cmd": {
		root, "api", "ws", "ws/client", "agent", "redisstore", "registry", "registry/routing", "registry/memory", "internal",
		"internal/metrics",
	},
	"examples": {root, "agent", "registry", "ws/client"},
}

// owned are the libraries that only one room may import: nobody else learns how its work is done.
var owned = map[string]string{
	"github.com/olahol/melody": "ws",
}

// room returns the room a package belongs to: empty for packages of others, the package's path if it has no room.
func room(pkg string) string {
	if pkg == modulePath {
		return root
	}
	path, ours := strings.CutPrefix(pkg, modulePath+"/")
	if !ours {
		return ""
	}
	found := ""
	for name := range arrows {
		if (path == name || strings.HasPrefix(path, name+"/")) && len(name) > len(found) {
			found = name
		}
	}
	if found == "" {
		return path
	}
	return found
}

func TestImportsFollowTheArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", modulePath+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
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
		seen[from] = true
		for _, imported := range pkg.Imports {
			if owner, ok := owned[imported]; ok && owner != from {
				t.Errorf("%s imports %s: only %s may know it", pkg.ImportPath, imported, owner)
			}
			if to := room(imported); to != "" && to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may not know %s", pkg.ImportPath, imported, from, to)
			}
		}
	}
	for name := range arrows {
		if !seen[name] && name != root && name != "examples" {
			t.Errorf("no package was seen in %s", name)
		}
	}
}
