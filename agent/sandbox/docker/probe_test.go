package docker

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/api/types/system"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

func TestProbeSaysWhatIsMissing(t *testing.T) {
	needEngine(t)
	usable := Config{Pod: "p", Host: shared.Host(), Image: dockertest.Image}
	if err := Probe(t.Context(), usable); err != nil {
		t.Errorf("a usable engine: %v", err)
	}
	nowhere := "unix://" + filepath.Join(t.TempDir(), "none")
	dead := filepath.Join(t.TempDir(), "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"no socket":   {Config{Host: nowhere}, "no engine at " + nowhere},
		"no listener": {Config{Host: "unix://" + dead}, "no engine at"},
		"no image":    {Config{Host: shared.Host(), Image: "no-such:image"}, "docker pull no-such:image"},
		"no address":  {Config{Host: "nonsense"}, "nonsense"},
	} {
		c.cfg.Pod = "p"
		err := Probe(t.Context(), c.cfg)
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pulled := Config{Pod: "p", Host: shared.Host(), Image: "no-such:image", Pull: true}
	if err := Probe(t.Context(), pulled); err != nil {
		t.Errorf("an image that may be pulled: %v", err)
	}
	_ = os.Remove(dead)
}

// probeVariable makes this test binary look at the engine with that address.
const probeVariable = "FARHAND_TEST_PROBE"

// Root may use any socket, so another user looks.
func TestProbeSaysWhoMayNot(t *testing.T) {
	needEngine(t)
	body, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := workspace(t, t.Name()).Dir
	program := filepath.Join(dir, "probe")
	if err := os.WriteFile(program, body, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(strings.TrimPrefix(shared.Host(), "unix://")), 0o711); err != nil {
		t.Fatal(err)
	}
	probe := exec.Command(program)
	probe.Env = []string{probeVariable + "=" + shared.Host()}
	probe.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
	said, err := probe.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "no permission to use "+shared.Host()) {
		t.Errorf("%v: %s", err, said)
	}
}

func TestEnginesThatCannotConfine(t *testing.T) {
	fine := system.Info{
		OSType: "linux", MemoryLimit: true, PidsLimit: true, CPUCfsQuota: true,
		SecurityOptions: []string{"name=apparmor", "name=seccomp,profile=default"},
	}
	if lack := missingFeature(fine); lack != "" {
		t.Errorf("a usable engine %s", lack)
	}
	for want, change := range map[string]func(*system.Info){
		"windows":    func(i *system.Info) { i.OSType = "windows" },
		"memory":     func(i *system.Info) { i.MemoryLimit = false },
		"processes":  func(i *system.Info) { i.PidsLimit = false },
		"CPUs":       func(i *system.Info) { i.CPUCfsQuota = false },
		"seccomp":    func(i *system.Info) { i.SecurityOptions = []string{"name=apparmor"} },
		"unconfined": func(i *system.Info) { i.SecurityOptions = []string{"name=seccomp,profile=unconfined"} },
		"user ids":   func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=rootless") },
		"namespaces": func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=userns") },
	} {
		info := fine
		info.SecurityOptions = append([]string(nil), fine.SecurityOptions...)
		change(&info)
		if lack := missingFeature(info); !strings.Contains(lack, want) {
			t.Errorf("%s: %q", want, lack)
		}
	}
}
