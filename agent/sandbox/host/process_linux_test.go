package host

import (
	"errors"
	"os"
	"os/exec"
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

// A process is not killed for the number that another had.
func TestKillOfAnotherProcess(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p, ok := readProcess(cmd.Process.Pid)
	if !ok || p.parent != os.Getpid() {
		t.Fatalf("%+v", p)
	}
	former := p
	former.start--
	former.kill()
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it did not end by itself: %v", err)
	}

	cmd = exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, _ = readProcess(cmd.Process.Pid)
	p.kill()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Errorf("the one that is meant: %v", cmd.ProcessState)
	}
}
