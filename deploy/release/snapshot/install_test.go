package snapshot_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

const version = "v0.8.10-snapshot"

// tryArchive unpacks the archive and runs the demo, which has a minute for its first answer.
func tryArchive(t *testing.T, c checkout, program string) {
	dir := t.TempDir()
	run(t, dir, nil, "tar", "-xzf", c.only(t, "*_linux_"+runtime.GOARCH+".tar.gz"), "--strip-components=1")
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "farhand.service"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	notices, err := os.ReadFile(filepath.Join(dir, "THIRD_PARTY_LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(notices),
		"github.com/redis/go-redis/v9 v", "npm: preact ", "\ngo go1.", "Apache License", "--- NOTICE")
	farhand := filepath.Join(dir, "farhand")
	if digest(t, farhand) != program {
		t.Error("the archive has another program")
	}
	contains(t, run(t, dir, nil, farhand, "version"), "farhand "+version+", commit "+c.commit+", go1.")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	demo := exec.CommandContext(ctx, farhand, "demo", "--once", "--addr", testkit.FreeAddr(t))
	demo.Env = []string{"HOME=" + dir}
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo: %v\n%s", err, out)
	}
	contains(t, string(out), `"state":"succeeded"`)
}

// tryDeb installs the package below a folder, with its scripts. The service's file is one that systemd accepts, and the
// installed program serves with what it says.
func tryDeb(t *testing.T, c checkout, program string) {
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		args = append([]string{"--root=" + root, "--force-script-chrootless", "--force-not-root"}, args...)
		run(t, root, nil, "dpkg", args...)
	}
	dpkg("--install", c.only(t, "*_linux_"+runtime.GOARCH+".deb"))
	farhand, settings := filepath.Join(root, "usr/bin/farhand"), filepath.Join(root, "etc/farhand/farhand.env")
	if digest(t, farhand) != program {
		t.Error("the package has another program")
	}
	if info, err := os.Stat(settings); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("farhand.env, which may have secrets: %v, %v", info, err)
	}
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "\n"+string(users), "\nfarhand:x:", ":/var/lib/farhand:")
	tryUnit(t, root)
	serve(t, farhand)

	if err := os.WriteFile(settings, []byte("FARHAND_LOG_LEVEL=warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", c.only(t, "*_linux_"+runtime.GOARCH+".deb"))
	if text, err := os.ReadFile(settings); err != nil || string(text) != "FARHAND_LOG_LEVEL=warn\n" {
		t.Errorf("an upgrade has changed the settings: %s %v", text, err)
	}
	dpkg("--remove", "farhand")
	if _, err := os.Stat(farhand); err == nil {
		t.Error("the program stays when the package is removed")
	}
}

// tryUnit has systemd check the file of the service, and how exposed it is.
func tryUnit(t *testing.T, root string) {
	// The targets that it names are of another package.
	for _, dir := range []string{"usr/lib/systemd/system", "etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, root, nil, "sh", "-c", `for d in /lib/systemd/system /usr/lib/systemd/system; do
		[ ! -e $d/sysinit.target ] || cp -n $d/*.target $d/*.slice usr/lib/systemd/system/ 2>/dev/null || :; done`)
	out := run(t, root, nil, "systemd-analyze", "--root="+root, "--man=no", "verify", "farhand.service")
	if strings.Contains(out, "farhand.service") {
		t.Errorf("systemd: %s", out)
	}
	run(t, root, nil, "systemd-analyze", "security", "--offline=true", "--threshold=20",
		filepath.Join(root, "usr/lib/systemd/system/farhand.service"))
}

// serve runs an installed gateway until it says that it is ready.
func serve(t *testing.T, farhand string) {
	addr, state := testkit.FreeAddr(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pod := exec.CommandContext(ctx, farhand, "serve")
	pod.Cancel = func() error { return pod.Process.Signal(os.Interrupt) }
	pod.Env = []string{"FARHAND_ADDR=" + addr, "FARHAND_DATA_DIR=" + state, "XDG_CACHE_HOME=" + state, "HOME=" + state}
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the gateway is ready", func() bool {
		return exec.CommandContext(ctx, farhand, "health", "--server", addr).Run() == nil
	})
	cancel()
	_ = pod.Wait() // it was interrupted
}

// tryRPM installs the package below a folder, without its scripts, whose programs are not there.
func tryRPM(t *testing.T, c checkout, program string) {
	root, file := t.TempDir(), c.only(t, "*_linux_"+runtime.GOARCH+".rpm")
	run(t, root, nil, "rpm", "--root", root, "--dbpath", "/var/lib/rpm", "--nodeps", "--noscripts", "--nosignature",
		"--install", file)
	if digest(t, filepath.Join(root, "usr/bin/farhand")) != program {
		t.Error("the package has another program")
	}
	contains(t, run(t, root, nil, "rpm", "-qp", "--nosignature", "--scripts", "--list", file),
		"systemd-sysusers", "systemctl disable", "/usr/lib/systemd/system/farhand.service", "/etc/farhand/farhand.env")
}

// trySBOM compares the bill of materials with what the program says of itself.
func trySBOM(t *testing.T, c checkout) {
	text, err := os.ReadFile(c.only(t, "*_linux_"+runtime.GOARCH+"*.sbom.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		SPDXVersion string
		Packages    []struct{ Name, VersionInfo string }
	}
	if err := json.Unmarshal(text, &d); err != nil || d.SPDXVersion != "SPDX-2.3" {
		t.Fatalf("%v, %q", err, d.SPDXVersion)
	}
	var listed, inside []string
	for _, p := range d.Packages {
		listed = append(listed, p.Name+" "+p.VersionInfo)
	}
	program := c.only(t, "farhand_linux_"+runtime.GOARCH+"*/farhand")
	for line := range strings.Lines(run(t, c.dir, nil, "go", "version", "-m", program)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "dep" {
			inside = append(inside, words[1]+" "+words[2])
		}
	}
	inside = append(inside, "github.com/farhand/farhand "+version, "stdlib "+
		strings.TrimPrefix(runtime.Version(), "go"))
	slices.Sort(listed)
	slices.Sort(inside)
	if !slices.Equal(listed, inside) {
		t.Errorf("the bill has %q,\nthe program %q", listed, inside)
	}
}

// tryCask looks at what goes to Homebrew's tap.
func tryCask(t *testing.T, c checkout) {
	text, err := os.ReadFile(filepath.Join(c.dist, "homebrew/Casks/farhand.rb"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), `cask "farhand"`, `version "`+version[1:]+`"`, `binary "farhand"`, "sha256 \"")
}
