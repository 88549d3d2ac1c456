package openclaw_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestRecordedFrames checks the recordings of real programs against the published schema, so the schema is the one that
// these programs keep. Of OpenClaw's own gateway only the frames are checked: what they carry has more and fewer fields
// than its schema says (auth.method of hello-ok, no "handled" in answers to node.event).
func TestRecordedFrames(t *testing.T) {
	s := readSchema(t)
	files, err := filepath.Glob("../../ws/node/testdata/recorded/*.jsonl")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no recordings")
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file, err := os.Open(path)
			must(t, err)
			defer file.Close()
			d := s.dialogue()
			lines := bufio.NewScanner(file)
			lines.Buffer(nil, 1<<20)
			for n := 1; lines.Scan(); n++ {
				var line struct {
					From  string
					Frame json.RawMessage
				}
				must(t, json.Unmarshal(lines.Bytes(), &line))
				check := d.check
				if line.From == "gateway" {
					check = func(text []byte) error { _, _, err := d.checkFrame(text); return err }
				}
				if err := check(line.Frame); err != nil {
					t.Errorf("line %d, from the %s: %v", n, line.From, err)
				}
			}
			must(t, lines.Err())
		})
	}
}
