// Package openclaw_test lets the real headless node hosts of OpenClaw, at pinned versions and at the newest, connect to
// two real pods. A proxy between them checks every frame of both sides against the schema that OpenClaw publishes.
//
// The node hosts take 1.5 GB, so `.ci/extra openclaw` installs and tests them. Without it, this package only checks its
// recordings and the document with its results.
package openclaw_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
)

var (
	chosen = flag.String("openclaw", "", "OpenClaw's versions to test: pinned, newest, or a list with "+
		"commas; empty: none")
	built  = flag.String("program", "", "the farhand to test; empty: it is built, with the race detector")
	logs   = flag.String("log", "warn", "log level of the pods")
	update = flag.Bool("update", false, "write the results into docs/openclaw.md")
)

// TestOpenClaw lets node hosts of each version do what people do with them. Each step is a row of the matrix in
// docs/openclaw.md.
func TestOpenClaw(t *testing.T) {
	if *chosen == "" {
		t.Log("no version of OpenClaw is chosen (-openclaw), so there is nothing to do")
		return
	}
	program := *built
	if program == "" {
		program = buildFarhand(t)
	}
	found := map[string]*results{}
	for _, version := range versions(t) {
		found[version] = &results{protocol: protocolOf(version)}
	}
	t.Run("of", func(t *testing.T) {
		for version, r := range found {
			t.Run(version, func(t *testing.T) {
				t.Parallel() // the node hosts load for most of the time
				testVersion(t, program, version, r)
			})
		}
	})
	if *chosen == "pinned" && !t.Failed() {
		holdDocument(t, matrix(found))
	}
}

// versions returns the chosen versions.
func versions(t *testing.T) (names []string) {
	t.Helper()
	switch *chosen {
	case "pinned":
		return pinned(t)
	case "newest":
		text, err := os.ReadFile(filepath.Join(installed, "newest", "installed"))
		must(t, err)
		return []string{strings.TrimSpace(string(text))}
	}
	return strings.Split(*chosen, ",")
}

// pinned returns the versions of testdata/package.json, in its order.
func pinned(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/package.json")
	must(t, err)
	var file struct{ Dependencies map[string]string }
	must(t, json.Unmarshal(text, &file))
	for line := range strings.Lines(string(text)) { // a map has no order
		if _, rest, ok := strings.Cut(line, `"openclaw-`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			names = append(names, name)
		}
	}
	if len(names) != len(file.Dependencies) {
		t.Fatalf("testdata/package.json has dependencies beside %q", names)
	}
	return names
}

// bench is what a version is tested with.
type bench struct {
	t       *testing.T
	version string
	pods    [2]*pod
	results *results
	host    *host
	proxy   *proxy
	device  string // the node's id
}

func testVersion(t *testing.T, program, version string, found *results) {
	redis := redistest.Single(t)
	model, blobs := startModel(t), t.TempDir()
	b := &bench{t: t, version: version, results: found}
	for i := range b.pods {
		b.pods[i] = startPod(t, program, string(rune('a'+i)),
			"FARHAND_NODE_PATH="+nodePath(version),
			"FARHAND_REDIS_URL="+redis, "FARHAND_PAIRING=open", "FARHAND_POD_LEASE=3s", "FARHAND_DRAIN_TIMEOUT=20s",
			"FARHAND_DATA_DIR=off", "FARHAND_BLOB_URL=file://"+blobs,
			"FARHAND_LOG_LEVEL="+*logs, "FARHAND_MODEL=scripted", "FARHAND_MODEL_URL="+model.URL)
	}
	b.proxy = startProxy(t, b.pods[0].addr, b.pods[1].addr)
	b.host = newHost(t, version, b.proxy.addr)
	for _, s := range steps {
		if !t.Run(s.id, func(t *testing.T) { b.step(t, s) }) && b.device == "" {
			break // without a node, the others only wait
		}
	}
}

// nodePath is where a version connects. The old ones know host and port only.
func nodePath(version string) string {
	if protocolOf(version) == 3 {
		return "/"
	}
	return "/ws/node"
}

// step is a row of the matrix.
type step struct {
	id, what string
	// run returns what the matrix says; empty: yes.
	run func(b *bench) string
}

func (b *bench) step(t *testing.T, s step) {
	outer := b.t
	b.t, b.host.t = t, outer
	defer func() { b.t = outer }()
	note := s.run(b)
	if note == "" {
		note = "yes"
	}
	b.results.rows = append(b.results.rows, note)
}
