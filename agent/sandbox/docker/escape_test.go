package docker

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/redisstore/redistest"
)

const canary = "canary-5f1c" // in whatever a container must not read

// tries runs scripts of which none may succeed, or say anything with the canary.
func (f *fixture) tries(scripts map[string]string) {
	f.t.Helper()
	for name, text := range scripts {
		out, errs, exit, err := f.run(f.t.Context(), script(text))
		if err != nil || exit.Code == 0 || strings.Contains(out+errs, canary) {
			f.t.Errorf("%s: %+v, %v: %s%s", name, exit, err, out, errs)
		}
	}
}

func TestEscapeToFilesOfTheHost(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(secret); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(f.space.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	f.tries(map[string]string{
		"shadow":              "cat /etc/shadow",
		"keys of a user":      "ls -a ~/.ssh || ls -a /root/.ssh",
		"absolute":            "cat " + secret,
		"dots":                "cat /workspace/../../../../../.." + secret,
		"symlink":             "cat /workspace/link",
		"own root":            "cat /proc/self/root" + secret,
		"root of the first":   "cat /proc/1/root" + secret,
		"folder of the first": "cat /proc/1/cwd/.." + secret,
		"disk":                "mknod /workspace/disk b 254 0 || mknod /tmp/disk b 8 0",
		"memory":              "mknod /workspace/mem c 1 1",
		"kernel memory":       "head -c 1 /proc/kcore || head -c 1 /dev/mem",
		"socket of docker":    "ls /var/run/docker.sock || ls " + strings.TrimPrefix(shared.Host(), "unix://"),
		"chroot":              "chroot /workspace /bin/true",
		"mount":               "mount -t tmpfs none /workspace || mount -o remount,rw / || mount -t proc proc /tmp",
		"user namespace":      "unshare -U true || unshare -r true",
		"mount namespace":     "unshare -m true || nsenter -t 1 -m true",
		"kernel settings":     "echo x > /proc/sys/kernel/core_pattern || echo b > /proc/sysrq-trigger",
		"cgroup":              "cd /sys/fs/cgroup && (mkdir x || mkdir memory/x || echo 0 > pids/pids.max)",
	})
}

func TestEscapeByWriting(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.tries(map[string]string{
		"anywhere": `for d in / /bin /dev /etc /proc /proc/1 /root /sys /sys/fs/cgroup /usr /var /workspace/..; do
			echo x 2>/dev/null > $d/x && echo "wrote in $d" && found=1; done; [ -n "$found" ]`,
		"programs in tmp":      "cp /bin/busybox /tmp/busybox && /tmp/busybox true",
		"programs in memory":   "cp /bin/busybox /dev/shm/busybox && /dev/shm/busybox true",
		"change the root":      "rm -f /bin/busybox || chmod 777 /bin",
		"own files to another": "touch /workspace/f; chown 0 /workspace/f",
	})
	folders := f.sh(`find / \( -path /proc -o -path /sys/devices \) -prune -o -type d -print 2>/dev/null |
		while read -r d; do touch "$d/x" 2>/dev/null && echo "$d"; done; true`)
	want := "/dev/mqueue /dev/shm /tmp /workspace"
	if strings.Join(slices.Sorted(strings.FieldsSeq(folders)), " ") != want {
		t.Errorf("folders that can be written to: %s", folders)
	}
	if out := f.sh("echo hello > /workspace/file; cat /workspace/file"); out != "hello" {
		t.Errorf("the workspace: %q", out)
	}
	info, err := os.Stat(filepath.Join(f.space.Dir, "file"))
	if err != nil || info.Size() != 6 {
		t.Errorf("the file in the workspace: %v, %v", info, err)
	}
}

func TestEscapeToTheNetwork(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	redis, err := net.ResolveTCPAddr("tcp", redistest.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(host string) string {
		return fmt.Sprintf("printf 'PING\\r\\n' | nc -w 1 %s %d", host, redis.Port)
	}
	f.tries(map[string]string{
		"redis":             ask("127.0.0.1"),
		"redis, by name":    ask("localhost"),
		"metadata":          "wget -T 1 -O - http://169.254.169.254/",
		"any host":          "nc -w 1 1.1.1.1 53",
		"address":           "ip link add x type dummy || ip addr add 10.0.0.1/8 dev lo",
		"raw socket":        "ping -c 1 -W 1 127.0.0.1",
		"names of the host": "grep -v -x -e 'nameserver 127.0.0.1' -e 'search \\.' /etc/resolv.conf",
		"second interface":  "grep -v 'lo:' /proc/net/dev | grep ':'",
	})
	l, err := net.Listen("unix", "@"+canary)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f.tries(map[string]string{"abstract sockets": "grep " + canary + " /proc/net/unix"})
}

func TestEscapeToOtherProcesses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	holders := `for p in /proc/[0-9]*; do [ "$(stat -c %u $p)" = 65534 ] || continue; `
	f.tries(map[string]string{
		"environment of the first": "cat /proc/1/environ",
		"environment of any":       "cat /proc/[0-9]*/environ | grep FARHAND_CANARY",
		"files of the first":       "ls /proc/1/fd/ || cat /proc/1/fd/0 || cat /proc/1/mem",
		"input of the holder":      holders + "echo > $p/fd/0 && exit 0; done; false",
		"end the holder":           holders + "kill -9 ${p#/proc/} && exit 0; done; false",
		"more rights":              "grep Cap /proc/self/status | grep -v 0000000000000000",
		"new rights":               "grep 'NoNewPrivs:.0' /proc/self/status",
		"any system call":          "grep 'Seccomp:.0' /proc/self/status",
		"another user":             "grep Uid: /proc/self/status | grep -v '12345.*12345.*12345.*12345'",
		"clock":                    "! date -s 2001-01-01 2>&1 | grep permitted",
		"name":                     "hostname other",
	})
	if out := f.sh("hostname; ls -d /proc/[0-9]* | wc -l"); !strings.HasPrefix(out, "sandbox\n") {
		t.Errorf("the name of the host: %q", out)
	}
}

// A setuid program gives no rights. Busybox's own su says whether it has them.
func TestEscapeBySetuid(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	body, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	su := filepath.Join(f.space.Dir, "su")
	if err := os.WriteFile(su, body, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(su, 0o755|os.ModeSetuid); err != nil { // It is root's.
		t.Fatal(err)
	}
	for _, program := range []string{"/workspace/su", "/bin/su"} {
		_, errs, exit, err := f.run(t.Context(), script(program+" -c id root"))
		if err != nil || exit.Code == 0 || !strings.Contains(errs, "must be suid") {
			t.Errorf("%s: %+v, %v, %q", program, exit, err, errs)
		}
	}
}

func TestProgramsNeverRunAsRoot(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.space.UID, f.space.GID = 0, 0
	if _, _, _, err := f.run(t.Context(), script("true")); err == nil {
		t.Error("a workspace of root was taken")
	}
	f.space.UID, f.space.GID = owner, owner
	elevated := script("true")
	elevated.Elevated = true
	if _, _, _, err := f.run(t.Context(), elevated); err != sandbox.ErrNotElevated {
		t.Errorf("elevated: %v", err)
	}
}

// The holder usually is nobody. Where nobody owns the workspace it is somebody else.
func TestProgramsOfNobodyDoNotReachTheHolder(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if err := os.Chown(f.space.Dir, holderUser, holderUser); err != nil {
		t.Fatal(err)
	}
	f.space.UID, f.space.GID = holderUser, holderUser
	if out := f.sh("echo > /workspace/file; id -u"); out != "65534" {
		t.Errorf("%q", out)
	}
	holders := `for p in /proc/[0-9]*; do [ "$(stat -c %u $p)" = 65533 ] || continue; found=1; `
	f.tries(map[string]string{
		"end":  holders + "kill -9 ${p#/proc/} && exit 0; done; [ -z \"$found\" ]",
		"read": holders + "cat $p/environ && exit 0; done; [ -z \"$found\" ]",
	})
}

func TestFolderOfACommandIsInTheWorkspace(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if err := os.MkdirAll(filepath.Join(f.space.Dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Links to what an engine has open have been ways out of containers.
	for name, to := range map[string]string{"fd": "/proc/self/fd/7", "up": "..", "etc": "/etc"} {
		if err := os.Symlink(to, filepath.Join(f.space.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"..", "/etc", "a/../..", "fd", "up", "etc", "none"} {
		c := script("pwd")
		c.Dir = dir
		if out, _, _, err := f.run(t.Context(), c); err == nil {
			t.Errorf("%s: %s", dir, out)
		}
	}
	c := script("pwd")
	c.Dir = "a/b"
	out, _, _, err := f.run(t.Context(), c)
	if err != nil || out != "/workspace/a/b\n" {
		t.Errorf("%q, %v", out, err)
	}
}
