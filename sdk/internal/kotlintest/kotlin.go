// Package kotlintest builds the Kotlin SDK for tests.
package kotlintest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildLimit is how long Maven may take. With its own tests, the build takes about a minute on two cores.
const buildLimit = 10 * time.Minute

// Root returns the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("this is no folder of the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// Maven returns a command that runs Maven without a network, in a folder.
func Maven(ctx context.Context, t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	root := Root(t)
	repository := filepath.Join(root, ".cache/maven")
	if _, err := os.Stat(filepath.Join(repository, "installed")); err != nil {
		t.Fatal("the packages of the Kotlin SDK are missing: run sh .ci/deps kotlin")
	}
	all := []string{"-o", "-q", "-B", "-Dmaven.repo.local=" + repository, "-Dkotlin.compiler.daemon=false"}
	all = append(all, args...)
	cmd := exec.CommandContext(ctx, "mvn", all...)
	cmd.Dir = dir
	// The environment of a test must not change what is built.
	cmd.Env = append(os.Environ(), "MAVEN_OPTS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx1g", "MAVEN_ARGS=")
	return cmd
}

// Run runs a command, and fails the test with its output if it fails.
func Run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

var building sync.Mutex

// Build compiles, tests and packs the SDK with its driver of the conformance suite, and puts its packages into
// .cache/maven. It returns the folder of the module "device": target has the package, its tests' classes, and in libs
// what it depends on. What was built of the same sources is used again.
func Build(t testing.TB) (device string) {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	root := Root(t)
	sources := []string{"sdk/kotlin", "sdk/conformance/drivers/kotlin"}
	sum := digest(t, root, sources)
	built := filepath.Join(root, ".cache/kotlin", sum)
	device = filepath.Join(built, "sdk/kotlin/device")
	if _, err := os.Stat(built); err == nil {
		return device
	}
	must(t, os.MkdirAll(filepath.Dir(built), 0o755))
	copied, err := os.MkdirTemp(filepath.Dir(built), "build-")
	must(t, err)
	defer os.RemoveAll(copied)
	for _, source := range sources {
		copyTree(t, filepath.Join(root, source), filepath.Join(copied, source))
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	Run(t, Maven(ctx, t, filepath.Join(copied, "sdk/kotlin"), "install", "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory=target/libs"))
	must(t, os.RemoveAll(filepath.Join(copied, "sdk/kotlin/android/target"))) // it has a copy of Android
	if err := os.Rename(copied, built); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err) // else another process was faster
	}
	return device
}

// ClassPath returns the class path of the SDK, and of the conformance suite's driver.
func ClassPath(device string) string {
	return strings.Join([]string{
		filepath.Join(device, "target/classes"), filepath.Join(device, "target/test-classes"),
		filepath.Join(device, "target/libs/*"),
	}, string(os.PathListSeparator))
}

// digest returns a name for the content of folders.
func digest(t testing.TB, root string, folders []string) string {
	t.Helper()
	sum := sha256.New()
	for _, folder := range folders {
		for _, path := range files(t, filepath.Join(root, folder)) {
			text, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// files returns the sources of a folder, in order.
func files(t testing.TB, folder string) []string {
	t.Helper()
	var paths []string
	must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "target":
			return filepath.SkipDir
		case !entry.IsDir() && !slices.Contains([]string{".go", ".md"}, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	for _, path := range files(t, from) {
		text, err := os.ReadFile(path)
		must(t, err)
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		must(t, os.MkdirAll(filepath.Dir(target), 0o755))
		must(t, os.WriteFile(target, text, 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
