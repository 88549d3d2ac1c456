package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	startTimeout  = time.Minute      // for creating a container, including the checks of engine and image
	removeTimeout = 15 * time.Second // for removing a container
	removes       = 5                // attempts to remove a container
	countTimeout  = 10 * time.Second // for one count by the holder: on a busy machine its first answer takes seconds
	counts        = 7                // recounts before a remaining process is taken as escaped
	startCounts   = 14               // recounts before a start is taken as failed: 16 s
)

// runningContainer is a running container. Only one command uses it at a time.
type runningContainer struct {
	api   *client.Client
	id    string // container name
	spec  spec
	since time.Time
	unset []string // variables of the image that commands must not see
	ready bool     // counted as running

	holder client.HijackedResponse // input and output of the holder
	counts chan int                // closed when the holder has ended
}

// newContainer creates a container, and waits until its holder counts. With an error it may also return a container,
// which must be removed.
func (e *Engine) newContainer(ctx context.Context, s spec) (*runningContainer, error) {
	if err := usable(ctx, e.api, e.cfg.Host); err != nil {
		return nil, err
	}
	image, err := e.image(ctx)
	if err != nil {
		return nil, err
	}
	b := &runningContainer{api: e.api, id: "farhand-" + rand.Text(), spec: s, since: time.Now(), unset: image.unset}
	if err := e.create(ctx, b, image.id); err != nil {
		return b, err
	}
	return b, b.start(ctx)
}

// create creates the container. It does not stop when ctx ends, but waits for the engine's answer: an engine completes
// abandoned requests, and would keep a container that this process does not know of.
func (e *Engine) create(ctx context.Context, b *runningContainer, imageID string) error {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	_, err := e.api.ContainerCreate(whole, client.ContainerCreateOptions{
		Name: b.id, Config: e.config(b.spec, imageID), HostConfig: e.hostConfig(b.spec),
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return unavailable("create container", err)
	}
	return nil
}

// start starts the container with its holder attached, so that it never runs without an owner that can end it.
func (b *runningContainer) start(ctx context.Context) error {
	attached, err := b.api.ContainerAttach(ctx, b.id, client.ContainerAttachOptions{
		Stream: true, Stdin: true, Stdout: true,
	})
	if err != nil {
		return unavailable("attach to container", err)
	}
	b.holder, b.counts = attached.HijackedResponse, make(chan int)
	go b.listen()
	if _, err := b.api.ContainerStart(ctx, b.id, client.ContainerStartOptions{}); err != nil {
		return unavailable("start a container", err)
	}
	if err := b.settle(ctx, startCounts); err != nil {
		return unavailable("start a container", fmt.Errorf("%w; does the image have /bin/sh and sleep?", err))
	}
	return nil
}

// listen forwards the holder's counts until the connection ends.
func (b *runningContainer) listen() {
	defer close(b.counts)
	_, _ = stdcopy.StdCopy(&numbers{to: b.counts}, io.Discard, b.holder.Reader)
	b.holder.Close()
}

// numbers sends each line that is written to it as a number.
type numbers struct {
	to   chan<- int
	line []byte
}

func (w *numbers) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			w.line = append(w.line, c)
			continue
		}
		n, err := strconv.Atoi(string(w.line))
		if err != nil {
			return 0, err
		}
		w.line = w.line[:0]
		w.to <- n
	}
	return len(p), nil
}

// count returns the number of processes in the container.
func (b *runningContainer) count(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	if err := b.holder.Conn.SetWriteDeadline(time.Now().Add(countTimeout)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(b.holder.Conn, "\n"); err != nil {
		return 0, err
	}
	select {
	case n, ok := <-b.counts:
		if !ok {
			return 0, errors.New("its first process ended")
		}
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// settle waits until only the container's own processes run. It recounts with growing pauses, because processes may
// still be starting or ending.
func (b *runningContainer) settle(ctx context.Context, counts int) error {
	n, err := b.count(ctx)
	for i := 0; err == nil && n != ownProcesses; i++ {
		if i == counts {
			return fmt.Errorf("it has %d processes, not %d", n, ownProcesses)
		}
		select {
		case <-time.After(time.Millisecond << i):
			n, err = b.count(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// ended reports whether the holder has ended. The container is then gone, or ends soon.
func (b *runningContainer) ended() bool {
	select {
	case <-b.counts:
		return true
	default:
		return false
	}
}

// remove kills all processes in the container, removes it, and waits until it is gone.
func (b *runningContainer) remove() error {
	if b.holder.Conn != nil {
		b.holder.Close() // ends the container, even if the engine does not answer
		for range b.counts {
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	var err error
	for range removes {
		_, err = b.api.ContainerRemove(ctx, b.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if !errdefs.IsConflict(err) {
			return err
		}
		// The engine is already removing it. That attempt may also fail.
		gone := b.api.ContainerWait(ctx, b.id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
		select {
		case <-gone.Result:
		case <-gone.Error:
		}
	}
	return err
}

// unavailable wraps the error of a failed request to the engine.
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", sandbox.ErrUnavailable, what, err)
}

// processLabel identifies this process across machines: boot id, pid namespace, pid and start time. It is empty if
// these cannot be read.
func processLabel() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	pid := os.Getpid()
	return fmt.Sprintf("%s %s %d %s", strings.TrimSpace(string(boot)), space, pid, startOf(pid))
}

// startOf returns when a process started, in clock ticks since the machine's boot, or "" if unknown.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	name := strings.LastIndexByte(string(stat), ')') // the name may contain any character
	if fields := strings.Fields(string(stat[name+1:])); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// isDead reports whether the process with this label has certainly ended. own is the label of this process. Processes
// of other machines or pid namespaces cannot be checked, and count as alive.
func isDead(label, own string) bool {
	l, o := strings.Fields(label), strings.Fields(own)
	if len(l) != 4 || len(o) != 4 || l[0] != o[0] || l[1] != o[1] {
		return false
	}
	pid, err := strconv.Atoi(l[2])
	if err != nil || pid <= 0 {
		return false
	}
	if isGone(pid) {
		return true
	}
	start := startOf(pid)
	return start != "" && start != l[3] // the pid was reused
}
