package host

import (
	"os"
	"testing"
)

func TestOwnStat(t *testing.T) {
	p, ok := readProcess(os.Getpid())
	if !ok || p.parent != os.Getppid() || p.threads < 1 || p.resident < 1<<20 {
		t.Errorf("%+v, %v", p, ok)
	}
}

func FuzzParseStat(f *testing.F) {
	data, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("1 (a) b) (c) S 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, ok := parseStat(7, data); ok && p.pid != 7 {
			t.Error(p)
		}
	})
}
