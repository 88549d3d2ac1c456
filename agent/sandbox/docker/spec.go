package docker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	labelPod     = "farhand.pod"       // on every container of a gateway: Config.Pod of its creator
	labelSpace   = "farhand.workspace" // id of the workspace
	labelProcess = "farhand.process"   // processLabel of its creator, for isDead
	holderUser   = 65534               // user of the holder, so that commands can neither end nor change it
	ownProcesses = 4                   // in an idle container: init, holder, and a subshell and sleep that end it
	startThreads = 10                  // threads that the engine needs to start a program
	openFiles    = 1024
	tmpFiles     = 16384
)

// holder is the script of the holder. It ends with its standard input, or after $1 seconds. It answers each input line
// with the number of processes in the container. It starts no process for that, so it still works when the process
// limit is reached.
const holder = `(sleep "$1"; kill -9 $$) </dev/null >/dev/null 2>&1 &
while read -r _; do set -- /proc/[0-9]*; echo $#; done`

// spec identifies the properties of a container. A command reuses a container only if its spec is the same.
type spec struct {
	space, dir string
	uid, gid   int
	memory     int64
	processes  int
	cpu        time.Duration
	fileSize   int64
}

// spec returns the spec of a container for commands with these limits.
func (e *Engine) spec(w sandbox.Workspace, l sandbox.Limits) spec {
	return spec{
		space: w.ID, dir: w.Dir, uid: w.UID, gid: w.GID,
		memory:    min(cmp.Or(l.Memory, e.cfg.Memory), e.cfg.Memory),
		processes: min(cmp.Or(l.Processes, e.cfg.Processes), e.cfg.Processes),
		cpu:       l.CPU, fileSize: l.FileSize,
	}
}

func (s spec) user() string { return fmt.Sprintf("%d:%d", s.uid, s.gid) }

// config returns the container configuration for a spec and an image id.
func (e *Engine) config(s spec, imageID string) *container.Config {
	user := strconv.Itoa(holderUser)
	if s.uid == holderUser {
		user = strconv.Itoa(holderUser - 1)
	}
	return &container.Config{
		Image: imageID, Hostname: "sandbox", User: user + ":" + user, WorkingDir: "/",
		Entrypoint:  []string{"/bin/sh", "-c", holder, "holder", strconv.Itoa(int(e.cfg.Life.Seconds()))},
		Cmd:         []string{},
		AttachStdin: true, AttachStdout: true, OpenStdin: true, StdinOnce: true, // Input ends with our connection.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Labels:      map[string]string{labelPod: e.cfg.Pod, labelSpace: s.space, labelProcess: processLabel()},
	}
}

// hostConfig returns the restrictions of a container.
func (e *Engine) hostConfig(s spec) *container.HostConfig {
	yes, tmp := true, min(e.cfg.Tmp, s.memory/4)
	pids := int64(s.processes) + ownProcesses
	pids = max(pids, ownProcesses+startThreads)
	return &container.HostConfig{
		AutoRemove:     true,
		NetworkMode:    "none",
		DNS:            []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, // hides the host's resolvers
		DNSSearch:      []string{"."},
		IpcMode:        "private",
		Sysctls:        ipcBounds(),
		CgroupnsMode:   "private",
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		Init:           &yes, // reaps orphans of commands
		LogConfig:      container.LogConfig{Type: "none"},
		OomScoreAdj:    500, // kill it before this process
		ShmSize:        tmp,
		Tmpfs:          map[string]string{"/tmp": s.tmpOptions(tmp)},
		Mounts: []mount.Mount{{
			Type: mount.TypeBind, Source: s.dir, Target: sandbox.Mount,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
		}},
		Resources: container.Resources{
			Memory: s.memory, MemorySwap: s.memory, // memory plus swap: no swap
			NanoCPUs: int64(e.cfg.CPUs * 1e9), PidsLimit: &pids, Ulimits: s.ulimits(),
		},
	}
}

// ipcBounds limits IPC objects that outlive their creators. Shared memory is freed with the last process that uses it;
// queues and semaphores are limited.
func ipcBounds() map[string]string {
	return map[string]string{
		"kernel.shm_rmid_forced": "1",
		"kernel.msgmni":          "16",
		"kernel.msgmnb":          "16384",
		"kernel.sem":             "250 32000 32 128",
	}
}

// tmpOptions returns the mount options of /tmp. They set the owner, because some engines use the mode of that folder in
// the image.
func (s spec) tmpOptions(size int64) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d,uid=%d,gid=%d,mode=1777,noexec,nosuid,nodev", size, tmpFiles, s.uid, s.gid)
}

// ulimits returns the limits of each process.
func (s spec) ulimits() []*container.Ulimit {
	l := []*container.Ulimit{
		{Name: "core"},
		{Name: "nofile", Soft: openFiles, Hard: openFiles},
	}
	if s.fileSize > 0 {
		l = append(l, &container.Ulimit{Name: "fsize", Soft: s.fileSize, Hard: s.fileSize})
	}
	if s.cpu > 0 {
		seconds := int64(math.Ceil(s.cpu.Seconds()))
		l = append(l, &container.Ulimit{Name: "cpu", Soft: seconds, Hard: seconds})
	}
	return l
}

// image is the image of the containers.
type image struct {
	id    string   // containers are created by id, so that the checked image is the one that runs
	unset []string // names of environment variables to unset
}

// image checks the image, and pulls it if it is missing and Config.Pull is set.
func (e *Engine) image(ctx context.Context) (image, error) {
	img, err := findImage(ctx, e.api, e.cfg.Image)
	if !isMissing(err) || !e.cfg.Pull {
		return img, err
	}
	pull, err := e.api.ImagePull(ctx, e.cfg.Image, client.ImagePullOptions{})
	if err != nil {
		return image{}, unavailable("pull the image "+e.cfg.Image, err)
	}
	defer pull.Close()
	if err := pull.Wait(ctx); err != nil {
		return image{}, unavailable("pull the image "+e.cfg.Image, err)
	}
	return findImage(ctx, e.api, e.cfg.Image)
}

// isMissing reports whether the error means that the engine does not have the image.
func isMissing(err error) bool { return errdefs.IsNotFound(err) }

// findImage returns the image with this name. It fails if the image is missing or declares volumes.
func findImage(ctx context.Context, api *client.Client, name string) (image, error) {
	found, err := api.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return image{}, fmt.Errorf("%w: there is no image %q; pull it with `docker pull %s`, or build an image with "+
			"this name: %w", sandbox.ErrUnavailable, name, name, err)
	}
	if err != nil {
		return image{}, unavailable("inspect the image "+name, err)
	}
	img := image{id: found.ID, unset: []string{"HOSTNAME", "PATH"}}
	if found.Config == nil {
		return img, nil
	}
	if len(found.Config.Volumes) > 0 {
		return image{}, fmt.Errorf("%w: the image %q declares volumes, whose size cannot be limited; "+
			"build it without VOLUME", sandbox.ErrUnavailable, name)
	}
	for _, v := range found.Config.Env {
		key, _, _ := strings.Cut(v, "=")
		img.unset = append(img.unset, key)
	}
	return img, nil
}

// If an engine cannot start a program, it writes the reason to the program's output.
const (
	startPrefix   = "OCI runtime exec failed: "
	maxStartError = 4 << 10 // bytes of a reason
)

// startWriter holds back output that looks like a start error, until it is known whether the program has started. It
// passes all other output immediately.
type startWriter struct {
	to       io.Writer
	buffered []byte
	passed   bool
}

func (w *startWriter) Write(p []byte) (int, error) {
	if w.passed {
		return w.to.Write(p)
	}
	w.buffered = append(w.buffered, p...)
	n := min(len(w.buffered), len(startPrefix))
	if string(w.buffered[:n]) == startPrefix[:n] && len(w.buffered) <= maxStartError {
		return len(p), nil
	}
	return len(p), w.pass()
}

// pass writes the buffered output. All further output passes.
func (w *startWriter) pass() error {
	w.passed = true
	if len(w.buffered) == 0 {
		return nil
	}
	buffered := w.buffered
	w.buffered = nil
	n, err := w.to.Write(buffered)
	if err == nil && n < len(buffered) {
		err = io.ErrShortWrite
	}
	return err
}

// startError returns why the program did not start.
func (w *startWriter) startError() error {
	text := strings.TrimSpace(strings.TrimPrefix(string(w.buffered), startPrefix))
	for _, missing := range []string{
		"executable file not found", "no such file or directory", "permission denied", "exec format error",
		"is a directory",
	} {
		if strings.Contains(text, missing) {
			return fmt.Errorf("%w: %s", sandbox.ErrNoProgram, text)
		}
	}
	return fmt.Errorf("%w: start the program: %s", sandbox.ErrUnavailable, text)
}
