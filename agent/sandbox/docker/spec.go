package docker

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	labelPod     = "farhand.pod"       // of every container of ours: the name of the process that made it
	labelSpace   = "farhand.workspace" // its workspace
	labelProcess = "farhand.process"   // its process, for isDead
	holderUser   = 65534               // runs the holder, so that commands can neither end nor change it
	ownProcesses = 4                   // of a container without commands: the init, the holder, and two that end it
	startThreads = 10                  // that the engine needs in the container while it starts a program
	openFiles    = 1024
	tmpFiles     = 16384
)

// holder is the script of the holder. It ends with its standard input, and after some seconds; and answers each line
// with the number of processes in the container. It starts no program for that, so it works where none can be started
// any more.
const holder = `(sleep "$1"; kill -9 $$) </dev/null >/dev/null 2>&1 &
while read -r _; do set -- /proc/[0-9]*; echo $#; done`

// spec is what tells containers apart.
type spec struct {
	space, dir string
	uid, gid   int
	memory     int64
	processes  int
	cpu        time.Duration
	fileSize   int64
}

// spec returns what a container for such commands is.
func (e *Engine) spec(w sandbox.Workspace, l sandbox.Limits) spec {
	return spec{
		space: w.ID, dir: w.Dir, uid: w.UID, gid: w.GID,
		memory:    min(cmp.Or(l.Memory, e.cfg.Memory), e.cfg.Memory),
		processes: min(cmp.Or(l.Processes, e.cfg.Processes), e.cfg.Processes),
		cpu:       l.CPU, fileSize: l.FileSize,
	}
}

func (s spec) user() string { return fmt.Sprintf("%d:%d", s.uid, s.gid) }

// config says what runs in a container, made of an image with that id.
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

// hostConfig says what the container may.
func (e *Engine) hostConfig(s spec) *container.HostConfig {
	yes, tmp := true, min(e.cfg.Tmp, s.memory/4)
	pids := int64(s.processes) + ownProcesses
	pids = max(pids, ownProcesses+startThreads)
	return &container.HostConfig{
		AutoRemove:     true,
		NetworkMode:    "none",
		DNS:            []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, // or they see which the host uses
		DNSSearch:      []string{"."},
		IpcMode:        "private",
		Sysctls:        ipcBounds(),
		CgroupnsMode:   "private",
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		Init:           &yes, // reaps what commands leave
		LogConfig:      container.LogConfig{Type: "none"},
		OomScoreAdj:    500, // rather than this process
		ShmSize:        tmp,
		Tmpfs:          map[string]string{"/tmp": s.tmpOptions(tmp)},
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: s.dir, Target: sandbox.Mount, BindOptions: &mount.BindOptions{
			Propagation: mount.PropagationRPrivate, NonRecursive: true,
		}}},
		Resources: container.Resources{
			Memory: s.memory, MemorySwap: s.memory, // together: no swap
			NanoCPUs: int64(e.cfg.CPUs * 1e9), PidsLimit: &pids, Ulimits: s.ulimits(),
		},
	}
}

// ipcBounds bounds what stays in memory when the processes that made it have ended: shared memory goes with the last
// process that has it, queues and semaphores are few.
func ipcBounds() map[string]string {
	return map[string]string{
		"kernel.shm_rmid_forced": "1",
		"kernel.msgmni":          "16",
		"kernel.msgmnb":          "16384",
		"kernel.sem":             "250 32000 32 128",
	}
}

// tmpOptions says what /tmp is. Its owner is named because some engines give it the mode of that folder in the image.
func (s spec) tmpOptions(size int64) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d,uid=%d,gid=%d,mode=1777,noexec,nosuid,nodev", size, tmpFiles, s.uid, s.gid)
}

// ulimits bounds each process.
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
