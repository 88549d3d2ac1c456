// Package snapshot_test makes a release as goreleaser would, without publishing it, and installs it.
package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var (
	chosen = flag.Bool("release", false,
		"make a release for this machine twice and install it, with what sh .ci/deps release installs")
	every = flag.Bool("every", false, "with -release: for every platform")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("no release is made: only a change of packaging breaks it, and -release tests that")
		return
	}
	os.Exit(m.Run())
}

// TestRelease: goreleaser makes the same bytes in two folders. They are complete, install, and answer.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Fatal("the packages are installed on Linux only")
	}
	signer := newSigner(t)
	first := newCheckout(t, t.TempDir())
	second := first.copy(t, filepath.Join(t.TempDir(), "another", "folder"))
	first.goreleaser(t, signer.env(), "release", "--snapshot", "--clean")
	second.goreleaser(t, nil, "release", "--snapshot", "--clean", "--skip=sign")

	made, again := first.digests(t), second.digests(t)
	if len(made) < 6 {
		t.Errorf("only %d files: %v", len(made), made)
	}
	if !maps.Equal(made, again) {
		t.Errorf("two releases of one commit differ:\n%v\n%v", made, again)
	}
	if out := run(t, first.dist, nil, "sha256sum", "--check", "--quiet", "checksums.txt"); out != "" {
		t.Error(out)
	}
	signer.verify(t, first.dist)

	program := digest(t, first.only(t, "farhand_linux_"+runtime.GOARCH+"*/farhand"))
	t.Run("archive", func(t *testing.T) { tryArchive(t, first, program) })
	t.Run("deb", func(t *testing.T) { tryDeb(t, first, program) })
	t.Run("rpm", func(t *testing.T) { tryRPM(t, first, program) })
	t.Run("bill of materials", func(t *testing.T) { trySBOM(t, first) })
	t.Run("formula", func(t *testing.T) { tryCask(t, first) })

	// Compiled packages are cached by their content. Without the cache the program is the same, too.
	second.goreleaser(t, []string{"GOCACHE=" + t.TempDir()}, "build", "--snapshot", "--clean", "--single-target")
	if fresh := digest(t, second.only(t, "farhand_linux_"+runtime.GOARCH+"*/farhand")); fresh != program {
		t.Error("a program that is compiled from nothing differs")
	}
}

// checkout is a copy of the working tree as a repository with one commit, which is the same in every folder.
type checkout struct{ dir, dist, commit string }

func newCheckout(t *testing.T, dir string) checkout {
	t.Helper()
	c := checkout{dir: dir, dist: filepath.Join(dir, "dist")}
	root := strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel"))
	run(t, root, nil, "sh", "-c", `git ls-files -coz --exclude-standard |
		tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$1"`, "sh", dir)
	if !*every {
		c.replace(t, ".goreleaser.yaml", "goos: [linux, darwin, windows]", "goos: [linux]")
		c.replace(t, ".goreleaser.yaml", "goarch: [amd64, arm64]", "goarch: ["+runtime.GOARCH+"]")
	}
	const day = "2026-01-02T03:04:05Z"
	env := []string{"GIT_AUTHOR_DATE=" + day, "GIT_COMMITTER_DATE=" + day, "GIT_CONFIG_GLOBAL=/dev/null"}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "A release"},
		{"tag", "v0.8.9"}, {"remote", "add", "origin", "https://github.com/farhand/farhand"},
	} {
		run(t, dir, env, "git", args...)
	}
	c.commit = strings.TrimSpace(run(t, dir, env, "git", "rev-parse", "HEAD"))
	// The licences of the pages' packages are there once they are installed.
	const packages = "web/node_modules"
	if err := os.Symlink(filepath.Join(root, packages), filepath.Join(dir, packages)); err != nil {
		t.Fatal(err)
	}
	return c
}

// copy returns the same checkout in another folder.
func (c checkout) copy(t *testing.T, dir string) checkout {
	t.Helper()
	run(t, ".", nil, "mkdir", "-p", dir)
	run(t, c.dir, nil, "cp", "-a", ".", dir)
	return checkout{dir: dir, dist: filepath.Join(dir, "dist"), commit: c.commit}
}

func (c checkout) replace(t *testing.T, name, from, to string) {
	t.Helper()
	path := filepath.Join(c.dir, name)
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), from) != 1 {
		t.Fatalf("%s: %q is not there once: %v", name, from, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (c checkout) goreleaser(t *testing.T, env []string, args ...string) {
	t.Helper()
	root := strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel"))
	program, err := exec.LookPath("goreleaser")
	if err != nil {
		program = filepath.Join(root, ".cache", "bin", "goreleaser")
	}
	run(t, c.dir, append([]string{"GOFLAGS="}, env...), program, append(args, "--parallelism", "2")...)
}

// only returns the one file of dist that a pattern names.
func (c checkout) only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

var published = regexp.MustCompile(`\.(tar\.gz|zip|deb|rpm|sbom\.json|rb)$|checksums\.txt$`)

// digests returns the digests of all files that a release publishes except signatures, by name.
func (c checkout) digests(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(c.dist, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && published.MatchString(path) {
			all[strings.TrimPrefix(path, c.dist)] = digest(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func digest(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// run runs a program in a folder, with more variables, and returns what it prints.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, last(out, 4000))
	}
	return string(out)
}

func last(text []byte, n int) []byte { return text[max(0, len(text)-n):] }

// signer has a key that exists for one test.
type signer struct{ home string }

func newSigner(t *testing.T) signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // short: gpg makes a socket in it
	if err != nil {
		t.Fatal(err)
	}
	s := signer{home}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		_ = os.RemoveAll(home)
	})
	run(t, home, s.env(), "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key",
		"test@localhost", "ed25519",
		"sign", "1d")
	return s
}

func (s signer) env() []string { return []string{"GNUPGHOME=" + s.home, "SIGNING_KEY=test@localhost"} }

func (s signer) verify(t *testing.T, dist string) {
	t.Helper()
	run(t, dist, s.env(), "gpg", "--batch", "--verify", "checksums.txt.sig", "checksums.txt")
}

// contains fails the test unless all parts are in a text.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range slices.DeleteFunc(parts, func(part string) bool { return strings.Contains(text, part) }) {
		t.Errorf("no %q in:\n%.4000s", part, text)
	}
}
