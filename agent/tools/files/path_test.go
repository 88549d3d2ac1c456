package files_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

const outside = "what stands outside"

// hostile makes a workspace with everything in it that must not be followed, and a file beside it.
func hostile(t testing.TB) *bench {
	t.Helper()
	b := newBench(t)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	secret := filepath.Join(b.dir, "..", "secret")
	b.put("real.txt", "old")
	b.put("folder/inner.txt", "old")
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	for _, err := range []error{
		os.WriteFile(secret, []byte(outside), 0o600),
		os.MkdirAll(filepath.Join(b.dir, "..", "workspace-2"), 0o700),
		os.Symlink(secret, at("absolute-link")), os.Symlink("../secret", at("link")),
		os.Symlink("..", at("up")), os.Symlink("/", at("root")), os.Symlink("/proc/self/root", at("proc")),
		os.Symlink("real.txt", at("inner-link")), os.Symlink("folder", at("folder-link")),
		os.Symlink("nowhere", at("dangling")), os.Symlink("loop", at("loop")),
		os.Symlink("/dev/zero", at("zero-link")),
		os.Link(secret, at("hard-link")), syscall.Mkfifo(at("fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// refusedPaths are paths that no tool takes, with what is said. A star: whatever is said.
var refusedPaths = map[string]string{
	"":                                    "empty",
	".":                                   "a folder",
	"./":                                  "a folder",
	"/":                                   "absolute",
	"..":                                  `".."`,
	"../secret":                           `".."`,
	"./../secret":                         `".."`,
	"folder/../../secret":                 `".."`,
	"folder/../real.txt":                  `".."`,
	"folder/..":                           `".."`,
	"/etc/passwd":                         "absolute",
	"//etc/passwd":                        "absolute",
	"/proc/self/root/etc/passwd":          "absolute",
	"/dev/zero":                           "absolute",
	"~":                                   "home folder",
	"~/.ssh/id_rsa":                       "home folder",
	`..\secret`:                           "backslash",
	`C:\secret`:                           "backslash",
	"real.txt\x00.png":                    "invisible characters",
	"real.txt\n":                          "invisible characters",
	"\x1b[2Jreal.txt":                     "invisible characters",
	"real\u202etxt.exe":                   "invisible characters",
	"real\u200b.txt":                      "invisible characters",
	"caf\x85":                             "invisible characters",
	"folder/":                             "a folder",
	"folder":                              "a folder",
	"folder/.":                            "a folder",
	"folder-link/":                        "a folder",
	"link/":                               "a folder",
	"link":                                "symbolic link",
	"absolute-link":                       "symbolic link",
	"inner-link":                          "symbolic link",
	"dangling":                            "symbolic link",
	"loop":                                "symbolic link",
	"zero-link":                           "symbolic link",
	"folder-link/inner.txt":               "symbolic link",
	"up/secret":                           "symbolic link",
	"up/workspace/real.txt":               "symbolic link",
	"root/etc/passwd":                     "symbolic link",
	"proc/etc/passwd":                     "symbolic link",
	"hard-link":                           "several names",
	"fifo":                                "not a regular file",
	"socket":                              "not a regular file",
	"fifo/x":                              "not a folder",
	"real.txt/x":                          "not a folder",
	".farhand-x.tmp":                      "reserved for the gateway",
	"folder/.FARHAND-x":                   "reserved for the gateway",
	strings.Repeat("x", 256):              "256 bytes",
	"a/" + strings.Repeat("é", 128):       "256 bytes",
	strings.Repeat("x/", 2048) + "x":      "4097 bytes",
	strings.Repeat("../", 100) + "secret": `".."`,
}

// inertPaths look dangerous and are plain names: files that are not there, or are made right there.
var inertPaths = []string{
	"%2e%2e%2fsecret", "..%2fsecret", "...", "..x", "x..", "REAL.TXT", "Folder/inner.txt", "~root", "$HOME", "`id`",
	"con", "nul.txt", ";", "-rf", "*", strings.Repeat("x", 255), "a b", "日本語", strings.Repeat("y/", 8) + "z", "．．",
	"\u2025", ".hidden", "secret", "farhand-x.tmp",
}

// tryAll tries a path with every tool.
func (b *bench) tryAll(path string) map[string]registry.Result {
	b.Helper()
	all := map[string]registry.Result{}
	for name, args := range map[string]object{
		"read": {"path": path}, "write": {"path": path, "content": "written"},
		"edit": {"path": path, "edits": []object{{"old": "what", "new": "edited"}}},
	} {
		res, err := b.try(name, args)
		if err != nil {
			b.Errorf("%s %q: %v", name, path, err)
		}
		all[name] = res
	}
	return all
}

// wantOutsideUntouched checks that nothing beside the workspace was changed or read.
func (b *bench) wantOutsideUntouched() {
	b.Helper()
	beside, err := os.ReadDir(filepath.Dir(b.dir))
	if err != nil || len(beside) != 3 || b.get("../secret") != outside {
		b.Errorf("%v, %v, %q", beside, err, b.get("../secret"))
	}
}

func TestRefusedPaths(t *testing.T) {
	b := hostile(t)
	before := b.entries()
	for path, why := range refusedPaths {
		if !utf8.ValidString(path) {
			path = strings.ToValidUTF8(path, "\u0085") // as JSON can say it
		}
		for name, res := range b.tryAll(path) {
			if res.Success || !strings.Contains(res.Error, why) || strings.Contains(res.Output, outside) {
				t.Errorf("%s %.40q: %+v, want %q", name, path, res, why)
			}
		}
	}
	if after := b.entries(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("before:\n%q\nafter:\n%q", before, after)
	}
	if b.get("real.txt") != "old" || b.get("folder/inner.txt") != "old" {
		t.Error("a file was changed")
	}
	b.wantOutsideUntouched()
}

func TestInertPaths(t *testing.T) {
	b := hostile(t)
	for _, path := range inertPaths {
		wantFailed(t, b.run("read", object{"path": path}), "no file")
		wantFailed(t, b.run("edit", object{"path": path, "edits": []object{{"old": "a", "new": "b"}}}), "no file")
		if res := b.run("write", object{"path": path, "content": path}); !res.Success || b.get(path) != path {
			t.Errorf("%.40q: %+v", path, res)
		}
		if res := b.run("read", object{"path": path}); !res.Success || res.Output != path {
			t.Errorf("%.40q: %+v", path, res)
		}
	}
	if b.get("real.txt") != "old" || b.get("folder/inner.txt") != "old" {
		t.Error("a file was changed")
	}
	b.wantOutsideUntouched()
}

// What no path can mean is refused before anybody is asked for an approval.
func TestPathsAreValidated(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"read", "write", "edit"} {
		check := b.tool(name, agent.SessionContext{}).(agent.ArgsValidator)
		for path, bad := range map[string]bool{"../x": true, "/x": true, "~": true, "": true, "x": false,
			"a/x": false} {
			args := []byte(`{"path":"` + path + `","content":"","edits":[{"old":"a","new":"b"}]}`)
			if err := check.Validate(t.Context(), args); (err != nil) != bad {
				t.Errorf("%s %q: %v", name, path, err)
			}
		}
	}
}

// Files and folders of other users are refused, also where this process is root and could open them.
func TestForeignOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	b := newBench(t)
	b.put("foreign.txt", outside)
	b.put("folder/x.txt", outside)
	for _, path := range []string{"foreign.txt", "folder"} {
		if err := os.Chown(filepath.Join(b.dir, path), 4321, 4321); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"foreign.txt", "folder/x.txt"} {
		for name, res := range b.tryAll(path) {
			if res.Success || !strings.Contains(res.Error, "not owned") {
				t.Errorf("%s %s: %+v", name, path, res)
			}
		}
	}
}

// What root makes belongs to the workspace's user.
func TestFilesBelongToTheWorkspace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	b := newBench(t)
	b.w.UID, b.w.GID = 4321, 4322
	b.run("write", object{"path": "a/b/c.txt", "content": "one"})
	b.run("edit", object{"path": "a/b/c.txt", "edits": []object{{"old": "one", "new": "two"}}})
	for _, path := range []string{"a", "a/b", "a/b/c.txt"} {
		info, err := os.Stat(filepath.Join(b.dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 4321 || stat.Gid != 4322 {
			t.Errorf("%s belongs to %d:%d", path, stat.Uid, stat.Gid)
		}
	}
}

// TestSymlinkSwaps has somebody put links in the place of a file, and of a folder, and take them away again, all the
// time. Nothing outside is ever read or written.
func TestSymlinkSwaps(t *testing.T) {
	b := hostile(t)
	at := func(name string) string { return filepath.Join(b.dir, name) }
	b.put("swapped", "what is inside")
	b.put("dir/secret", "what is inside")
	ctx, cancel := context.WithCancel(t.Context())
	swaps := make(chan int, 1)
	go func() { // until the test ends; the tools make files and folders in between, so not every step works
		n := 0
		for ; ctx.Err() == nil; n++ {
			_ = os.Symlink("../secret", at("new"))
			_ = os.Rename(at("new"), at("swapped"))
			_ = os.RemoveAll(at("dir"))
			_ = os.Symlink("..", at("dir"))
			_ = os.WriteFile(at("new"), []byte("what is inside"), 0o600)
			_ = os.Rename(at("new"), at("swapped"))
			_ = os.Remove(at("dir"))
			_ = os.Mkdir(at("dir"), 0o700)
			_ = os.WriteFile(at("dir/secret"), []byte("what is inside"), 0o600)
		}
		swaps <- n
	}()
	succeeded := 0
	for range 60 {
		for _, path := range []string{"swapped", "dir/secret"} {
			for name, res := range b.tryAll(path) {
				if strings.Contains(res.Output, outside) {
					t.Fatalf("%s %s: %+v", name, path, res)
				}
				if res.Success {
					succeeded++
				}
			}
		}
	}
	cancel()
	if n := <-swaps; n < 10 || succeeded == 0 {
		t.Errorf("%d swaps, %d calls got through", n, succeeded)
	}
	beside, err := os.ReadDir(filepath.Dir(b.dir))
	if err != nil || len(beside) != 3 || b.get("../secret") != outside {
		t.Errorf("%v, %v, %q", beside, err, b.get("../secret"))
	}
}

// FuzzPath writes and reads any path. The model: a path either is refused and changes nothing, or is local by the
// standard library's word, means what it says, and is all that changes.
func FuzzPath(f *testing.F) {
	for path := range refusedPaths {
		f.Add(path)
	}
	for _, path := range inertPaths {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !utf8.ValidString(path) {
			return // no JSON can say it
		}
		b := newBench(t)
		res := b.run("write", object{"path": path, "content": "content of " + path})
		if beside, err := os.ReadDir(filepath.Dir(b.dir)); err != nil || len(beside) != 1 {
			t.Fatalf("%q: %v, %v", path, beside, err)
		}
		if !res.Success {
			if left := b.entries(); len(left) != 0 || res.Error == "" {
				t.Fatalf("%q: %q, %+v", path, left, res)
			}
			wantFailed(t, b.run("read", object{"path": path}), "")
			return
		}
		clean := filepath.Clean(path)
		left := b.entries()
		if !filepath.IsLocal(path) || len(left) != strings.Count(clean, "/")+1 ||
			strings.TrimSuffix(left[len(left)-1], "/") != clean || b.get(clean) != "content of "+path {
			t.Fatalf("%q: %q", path, left)
		}
		if again := b.run("read", object{"path": clean}); !again.Success || again.Output != "content of "+path {
			t.Fatalf("%q: %+v", path, again)
		}
	})
}
