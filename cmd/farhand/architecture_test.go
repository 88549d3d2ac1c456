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
// starts with. The device SDK imports no other package of this module. A room of its own below another one is an
// exception, whose reason stands beside it.
var arrows = map[string][]string{
	"internal": {},
	"internal/metrics": { // one place reads the counters of all rooms
		"api", "api/wire", "ws", "agent", "agent/access", "agent/access/approval", "agent/chat", "agent/hooks",
		"agent/provider", "agent/sandbox", "agent/tools", "agent/tools/upstream", "agent/wake",
		"redisstore", "redisstore/bus", "registry", "registry/routing", "internal",
	},
	"registry":                  {"internal"},
	"registry/approvals":        {"registry", "registry/documents"},
	"registry/blobs":            {"registry", "registry/documents"},
	"registry/credentials":      {"registry", "registry/documents"},
	"registry/pairings":         {"registry", "registry/documents"},
	"registry/routing":          {"registry", "internal"},
	"registry/sleeping":         {"registry", "registry/documents", "internal"},
	"registry/tenants":          {"registry", "registry/documents"},
	"registry/toolmemory":       {"registry", "registry/documents", "internal"},
	"registry/wakes":            {"registry", "registry/documents"},
	"registry/defaults":         {"registry", "registry/documents"},
	"registry/documents":        {"registry"},
	"registry/memory":           {"registry", "registry/approvals", "registry/blobs", "registry/credentials", "registry/defaults", "registry/documents", "registry/pairings", "registry/sleeping", "registry/tenants", "registry/toolmemory", "registry/wakes"},
	"registry/memory/statefile": {"registry/memory"}, // bbolt, which the store itself does not know
	"registry/registrytest":     {"registry", "registry/documents", "registry/routing", "internal"},
	"redisstore":                {"registry", "registry/approvals", "registry/blobs", "registry/credentials", "registry/defaults", "registry/documents", "registry/pairings", "registry/sleeping", "registry/tenants", "registry/toolmemory", "registry/wakes", "internal", "redisstore/bus", "redisstore/internal"},
	"redisstore/bus":            {"registry", "internal", "redisstore/internal"},
	"redisstore/internal":       {"registry"},
	"redisstore/redistest":      {"internal"},

	"agent": {
		"agent/access", "agent/schema", "registry", "internal",
		"agent/sandbox",         // a session's workspace is one of sandbox
		"agent/chat/provenance", // whose words a model's arguments repeat is looked at before each call
	},
	"agent/access":          {"registry", "internal"},
	"agent/access/approval": {"agent", "agent/access", "registry", "internal"}, // shows a call as agent describes it
	"agent/access/usage":    {"agent", "agent/access", "registry", "internal"}, // counts what agent reports
	"agent/chat":            {"agent", "agent/access", "agent/provider", "agent/chat/provenance", "registry", "internal"},
	"agent/chat/provenance": {"registry"},
	"agent/tools":           {"agent", "agent/access", "agent/sandbox", "registry", "internal"},
	"agent/tools/upstream": { // speaks MCP
		"agent", "agent/access", "agent/mcpcontent", "agent/sandbox", "agent/schema", "registry", "internal",
	},
	"agent/sandbox":           {},
	"agent/sandbox/workspace": {"agent", "agent/sandbox", "registry"}, // the folder of an agent session
	"agent/provider":          {"registry", "internal"},
	"agent/schema":            {"registry", "internal"},
	"agent/hooks":             {"agent", "agent/access", "registry", "internal"},
	"agent/wake":              {"registry", "internal"},
	"agent/blobs":             {"registry"},
	"agent/mcpcontent":        {"registry", "internal"},

	"api": {
		"api/wire", "agent", "agent/access", "agent/access/approval", "agent/chat", "agent/mcpcontent", "agent/provider",
		"registry", "internal",
	},
	"api/wire": {"registry"}, // the types of requests and answers, for server and commands
	"ws": {
		"agent", "agent/access", "agent/access/approval", "agent/chat", "agent/wake", "registry", "registry/routing",
		"ws/mcp", "ws/node", "ws/internal", "internal",
	},
	"ws/mcp":      {"agent/mcpcontent", "registry", "ws/internal", "internal"},
	"ws/node":     {"agent/mcpcontent", "registry", "ws/internal", "internal"},
	"ws/internal": {"registry", "internal"},
	"ws/client":   {},
	"web":         {}, // files, which know the HTTP API only
	root: { // wires all rooms
		"api", "api/wire", "ws", "agent", "agent/access", "agent/access/approval", "agent/access/usage", "agent/blobs",
		"agent/chat",
		"agent/hooks", "agent/provider", "agent/sandbox", "agent/sandbox/workspace", "agent/schema", "agent/tools",
		"agent/tools/upstream", "agent/wake", "redisstore", "registry", "registry/routing", "registry/memory",
		"registry/memory/statefile", "internal", "internal/metrics", "web",
	},
	"cmd": {
		root, "api/wire", "ws/client", "ws/node", "agent/access", "agent/provider", "agent/sandbox", "agent/tools",
		"registry", "internal",
	},
	"examples": {root, "agent", "agent/provider", "agent/sandbox", "ws/client"},
	"deploy":   {},            // has tools of releases, and tests
	"sdk":      {"ws/client"}, // has tests only, and what they share
}

// siblings are the imports allowed between packages of one of the rooms agent/access and internal, which have many
// small packages. A package without a row imports none of them. internal/metrics reads the counters of all, and is left
// out.
var siblings = map[string][]string{
	"agent/access/approval": {"auth", "policy"},
	"agent/access/budget":   {"auth"},
	"agent/access/erasure":  {"auth"},
	"agent/access/jwt":      {"auth"},
	"agent/access/pairing":  {"auth", "policy"},
	"agent/access/policy":   {"auth"},
	"agent/access/usage":    {"auth"},
	"internal/certificate":  {"pause"},
	"internal/chromiumtest": {"testkit"},
	"internal/egress":       {"publicnet"},
	"internal/envconf":      {"bytesize", "days", "secret"},
	"internal/gcfloor":      {"pause"},
	"internal/listener":     {"share"},
	"internal/otlp":         {"pause", "trace"},
	"internal/reload":       {"pause"},
}

// owned are the libraries that only some rooms may import, so that no other depends on them.
var owned = map[string][]string{
	"github.com/olahol/melody":            {"ws"},
	"github.com/gorilla/websocket":        {"ws", "ws/client"},
	"github.com/gin-gonic/gin":            {"api"},
	"github.com/redis/go-redis/v9":        {"redisstore", "redisstore/bus", "redisstore/internal", "cmd"},
	"github.com/prometheus/client_golang": {"internal/metrics"},
	"go.etcd.io/bbolt":                    {"registry/memory/statefile"},
	"go.opentelemetry.io/otel":            {"internal", root}, // internal/trace for all rooms
	"filippo.io/age":                      {"internal"},
}

// messages are the types of package registry that travel between pods, and of what carries them. Their form in bytes is
// redisstore/bus's alone, which exports nothing of it.
var messages = regexp.MustCompile(`\bregistry\.(Envelope|Reply|Bus|BusHandler|SendCallback|PendingSend)\b`)

// carriers may name these types. The root package hands a bus to a pod and closes it.
var carriers = []string{
	"registry/routing", "registry/memory", "registry/registrytest", "redisstore", "redisstore/bus", root,
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
	seen, used := map[string]bool{}, map[[2]string]bool{}
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
			to := room(imported)
			if to != "" && to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may not import %s", pkg.ImportPath, imported, from, to)
			}
			used[[2]string{from, to}] = true
		}
	}
	for name, allowed := range arrows {
		if !seen[name] && name != root && name != "examples" {
			t.Errorf("no package was seen in %s", name)
		}
		for _, to := range allowed {
			if seen[name] && !used[[2]string{name, to}] {
				t.Errorf("%s imports nothing of %s: take the arrow out", name, to)
			}
		}
	}
}

func TestSiblingsFollowTheArrows(t *testing.T) {
	found := map[string][]string{}
	for _, pkg := range packages(t) {
		path, _ := strings.CutPrefix(pkg.ImportPath, modulePath+"/")
		for _, room := range []string{"agent/access/", "internal/"} {
			if !strings.HasPrefix(path, room) || strings.HasPrefix(path, "internal/metrics") {
				continue
			}
			for _, imported := range pkg.Imports {
				if name, ok := strings.CutPrefix(imported, modulePath+"/"+room); ok {
					found[path] = append(found[path], name)
				}
			}
		}
	}
	for path, imports := range found {
		if !slices.Equal(imports, siblings[path]) {
			t.Errorf("%s imports of its siblings %v; allowed are %v", path, imports, siblings[path])
		}
	}
	for path := range siblings {
		if found[path] == nil {
			t.Errorf("%s imports none of its siblings: take the row out", path)
		}
	}
}

// TestOnlyCarriersKnowMessages: makers and servers of calls do not know how calls reach another pod.
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

// maxDependencies bounds the modules that the product imports itself. It only falls, unless a decision says what for.
const maxDependencies = 35

// forTests are the modules that only tests import. No program has them.
var forTests = []string{"go.uber.org/goleak"}

// TestDependenciesAreDescribed: each module of go.mod that is imported has a row in docs/architecture.md, and no other.
func TestDependenciesAreDescribed(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var required, described []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		required = append(required, m[1])
	}
	_, section, _ := strings.Cut(string(doc), "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		described = append(described, m[1])
	}
	slices.Sort(described)
	if len(required) == 0 || len(required) > maxDependencies+len(forTests) || !slices.Equal(required, described) {
		t.Errorf("go.mod requires %d modules:\n%s\ndescribed are:\n%s", len(required), strings.Join(required, "\n"),
			strings.Join(described, "\n"))
	}
}
