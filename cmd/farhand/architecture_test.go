package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"internal": {},
	"internal/metrics": {
		"api", "ws", "agent", "redisstore", "redisstore/bus", "registry", "registry/routing", "internal",
	},
	"registry":              {"internal"},
	"registry/routing":      {"registry", "internal"},
	"registry/memory":       {"registry", "internal"},
	"registry/registrytest": {"registry", "registry/routing", "internal"},
	"redisstore":            {"registry", "internal", "redisstore/bus", "redisstore/internal", "redisstore/redistest"},
	"redisstore/bus":        {"registry", "internal", "redisstore/internal"},
	"redisstore/internal":   {"registry"},
	"redisstore/redistest":  {"internal"},
	"agent":                 {"registry", "internal"},
	"api":                   {"agent", "registry", "internal"},
	"ws":                    {"agent", "registry", "registry/routing", "internal"},
	"ws/client":             {},
	root: {
		"api", "ws", "agent", "redisstore", "registry", "registry/routing", "registry/memory", "internal",
		"internal/metrics",
	},
	"cmd": {
		root, "api", "ws", "ws/client", "agent", "redisstore", "registry", "registry/routing", "registry/memory",
		"internal", "internal/metrics",
	},
	"examples": {root, "agent", "registry", "ws/client"},
}

// owned are the libraries that only some rooms may import: nobody else learns how their work is done.
var owned = map[string][]string{
	"github.com/olahol/melody":            {"ws"},
	"github.com/gorilla/websocket":        {"ws", "ws/client", "cmd"},
	"github.com/gin-gonic/gin":            {"api"},
	"github.com/redis/go-redis/v9":        {"redisstore", "redisstore/bus", "redisstore/internal", "cmd"},
	"github.com/prometheus/client_golang": {"internal/metrics"},
}

// messages are the types of package registry that travel between pods, and of what carries them. Their form in bytes is
// redisstore/bus's alone, which exports nothing of it.
var messages = regexp.MustCompile(`\bregistry\.(Envelope|Reply|Bus|BusHandler|SendCallback|PendingSend)\b`)

// carriers may name these types. The root package and farhand-bench hand a bus to a pod and close it.
var carriers = []string{
	"registry/routing", "registry/memory", "registry/registrytest", "redisstore", "redisstore/bus", root, "cmd",
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

// goPackage is what `go list` says of a package.
type goPackage struct {
	Dir, ImportPath  string
	Imports, GoFiles []string
}

// packages lists the packages of this module.
func packages(t *testing.T) (all []goPackage) {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Imports,GoFiles", modulePath+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
	}
}

func TestImportsFollowTheArrows(t *testing.T) {
	seen := map[string]bool{}
	for _, pkg := range packages(t) {
		from := room(pkg.ImportPath)
		allowed, known := arrows[from]
		if !known {
			t.Errorf("%s lives in no room of the plan", pkg.ImportPath)
			continue
		}
		seen[from] = true
		for _, imported := range pkg.Imports {
			for library, owners := range owned {
				if strings.HasPrefix(imported+"/", library+"/") && !slices.Contains(owners, from) {
					t.Errorf("%s imports %s: only %v may know it", pkg.ImportPath, imported, owners)
				}
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

// TestOnlyCarriersKnowMessages: whoever makes or serves a call does not know how it reaches another pod.
func TestOnlyCarriersKnowMessages(t *testing.T) {
	for _, pkg := range packages(t) {
		if slices.Contains(carriers, room(pkg.ImportPath)) {
			continue
		}
		for _, file := range pkg.GoFiles {
			text, err := os.ReadFile(filepath.Join(pkg.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if name := messages.Find(text); name != nil {
				t.Errorf("%s/%s names %s", pkg.ImportPath, file, name)
			}
		}
	}
}
