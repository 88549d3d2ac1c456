package docker

import (
	"bytes"
	"strings"
	"testing"
)

// What a program writes arrives whole, however it is cut into pieces.
func FuzzOutputIsPassedOn(f *testing.F) {
	f.Add([]byte("plain"), 2)
	f.Add([]byte(startPrefix+"not really"), 5)
	f.Add([]byte(startPrefix[:7]), 100)
	f.Add([]byte(startPrefix+strings.Repeat("x", 2*maxStartError)), 1000)
	f.Fuzz(func(t *testing.T, said []byte, piece int) {
		var got bytes.Buffer
		w := &startWriter{to: &got}
		for rest := said; len(rest) > 0; {
			n := min(max(piece, 1), len(rest))
			if wrote, err := w.Write(rest[:n]); err != nil || wrote != n {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if len(w.buffered) > maxStartError {
			t.Errorf("%d bytes are held back", len(w.buffered))
		}
		if err := w.pass(); err != nil || !bytes.Equal(got.Bytes(), said) {
			t.Errorf("%q became %q, %v", said, got.Bytes(), err)
		}
	})
}

// Labels may be anything: anybody may make containers with them. None makes a living process a dead one.
func FuzzLabelsOfProcesses(f *testing.F) {
	own := processLabel()
	for _, label := range []string{own, "", "a b c d", "  ", strings.Repeat("9 ", 4)} {
		f.Add(label)
	}
	words := strings.Fields(own)
	f.Fuzz(func(t *testing.T, label string) {
		l := strings.Fields(label)
		if isDead(label, own) && (len(l) != 4 || l[0] != words[0] || l[1] != words[1]) {
			t.Errorf("%q is of another machine", label)
		}
		if isDead(own, own) {
			t.Error("this process is dead")
		}
	})
}
