package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/internal/procgroup"
)

// process is one Chromium process tree with its profile. It implements chromedp.Allocator for this one browser.
type process struct {
	group      *procgroup.Group
	memory     *memoryWatch
	profile    string // folder
	conn       *wire
	stderrTail *procgroup.Tail // of stderr
	stderr     *os.File
	reading    sync.WaitGroup // of stderr
	overMemory atomic.Bool    // killed because it exceeded the memory limit
	flooded    atomic.Bool    // killed because its pages kept the gateway busy
	done       chan struct{}  // closed when it has ended
}

// startProcess starts Chromium.
func startProcess(cfg Config, scale *memoryWatch, program, dir, proxy string) (*process, error) {
	profile, err := os.MkdirTemp(dir, "profile-")
	if err != nil {
		return nil, err
	}
	p := &process{profile: profile, memory: scale, done: make(chan struct{})}
	if err := p.start(cfg, program, proxy); err != nil {
		remove(profile)
		return nil, err
	}
	return p, nil
}

func (p *process) start(cfg Config, program, proxy string) error {
	if err := os.Mkdir(filepath.Join(p.profile, tempDir), 0o700); err != nil {
		return err
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirIn.Close()
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		ourOut.Close()
		return err
	}
	defer theirOut.Close()
	cmd := exec.Command(program, arguments(cfg, p.profile, proxy)...)
	cmd.Env, cmd.Dir = environment(p.profile), p.profile
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	said, stderr, err := os.Pipe()
	if err != nil {
		ourIn.Close()
		ourOut.Close()
		return err
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	confine(cmd)
	started := make(chan error)
	go func() {
		// The kernel kills the process when the thread that started it ends, so this thread must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		group, err := procgroup.Start(cmd)
		p.group = group
		started <- err
		if err == nil {
			_ = group.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		ourIn.Close()
		ourOut.Close()
		said.Close()
		return err
	}
	// Pages may use any amount of memory, and Chromium also keeps their storage in memory.
	p.memory.add(filepath.Base(p.profile), watched{limit: cfg.Memory, ended: p.done, exceeded: func() {
		p.overMemory.Store(true)
		p.kill()
	}})
	p.stderrTail, p.stderr = procgroup.NewTail(maxTail), said
	p.reading.Go(func() { _, _ = io.Copy(p.stderrTail, said) })
	p.conn = newWire(ourIn, ourOut, func() {
		p.flooded.Store(true)
		p.kill()
	})
	return nil
}

// Allocate implements chromedp.Allocator.
func (p *process) Allocate(ctx context.Context, opts ...chromedp.BrowserOption) (*chromedp.Browser, error) {
	return chromedp.NewBrowserTransport(ctx, p.conn, opts...)
}

// Wait implements chromedp.Allocator.
func (p *process) Wait() { <-p.done }

// Attaches implements chromedp.Attacher: chromedp must not end the process.
func (p *process) Attaches() bool { return true }

// kill kills the process. It may be called from any goroutine.
func (p *process) kill() { _ = p.group.Kill() }

// maxTail is how much of the end of stderr is kept, in bytes.
const maxTail = 2 << 10

// close kills the process with its children, and removes its profile.
func (p *process) close() {
	p.kill()
	_ = p.conn.Close()
	<-p.done
	p.memory.remove(filepath.Base(p.profile))
	p.stderr.Close() // do not wait for EOF: children may hold the pipe open for a moment
	p.reading.Wait()
	remove(p.profile)
}

// startError returns an error for operators with the last output of the process.
func (p *process) startError() error {
	text := strings.TrimSpace(p.stderrTail.String())
	if strings.Contains(text, "sandbox") {
		return errors.New("the sandbox of Chromium does not work here (no user namespaces?): allow them for the " +
			"gateway's user, or set FARHAND_BROWSER_NO_SANDBOX")
	}
	return fmt.Errorf("no browser: Chromium did not start: %s", text)
}

// programs are the paths and names of Chromium, in order of preference. The headless shell is the same engine without
// the user interface, and starts with a quarter of the processor time. Debian's /usr/bin/chromium is a script that adds
// flags and API keys of Google, so the binary behind it comes first.
var programs = [...]string{
	"/usr/lib/chromium/chromium-headless-shell", "chromium-headless-shell", "chrome-headless-shell", "headless-shell",
	"/usr/lib/chromium/chromium", "chromium", "chromium-browser", "/opt/google/chrome/chrome", "google-chrome-stable",
	"google-chrome",
}

// Probe starts Chromium and ends it again. If that fails, the error says why, and what to do.
func Probe(ctx context.Context, cfg Config) error {
	b, err := New(cfg)
	if err != nil {
		return err
	}
	defer b.Close(context.WithoutCancel(ctx))
	if b.absent != nil {
		return b.absent
	}
	started, err := b.launch(ctx)
	if err != nil {
		return err
	}
	started.close()
	return nil
}

// find returns the path of Chromium. If there is none, the error says why, and what to do.
func find(cfg Config) (string, error) {
	if !supported {
		return "", errors.New("the tool browser works only on Linux")
	}
	if os.Geteuid() == 0 && !cfg.NoSandbox {
		return "", errors.New("the sandbox of Chromium does not work for root: run the gateway as another user, " +
			"or set FARHAND_BROWSER_NO_SANDBOX")
	}
	if cfg.Program != "" {
		path, err := exec.LookPath(cfg.Program)
		if err != nil {
			return "", fmt.Errorf("FARHAND_BROWSER: %w", err)
		}
		return path, nil
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium was found: install it (Debian: apt-get install chromium-headless-shell), or " +
		"set its path with FARHAND_BROWSER")
}

const (
	baseName  = "browsers"
	podPrefix = "pod-"
	lockFile  = "lock"
	tempDir   = "tmp"

	newLockFile = "lock.new"

	removeFor   = 3 * time.Second
	removePause = 10 * time.Millisecond
)

// folder is the folder of one pod process for its profiles. The process holds a lock in it. Folders without a lock
// belong to dead processes, and the next process removes them.
type folder struct {
	path string
	lock *os.File
}

// newFolder creates a folder below dir. It removes the folders of dead processes, and kills what still runs there.
func newFolder(dir string) (*folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, baseName)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	removeLeftovers(base)
	path, err := os.MkdirTemp(base, podPrefix)
	if err != nil {
		return nil, err
	}
	f, err := newLock(path)
	if err != nil {
		remove(path)
		return nil, err
	}
	return &folder{path: path, lock: f}, nil
}

// newLock creates the lock file of a folder. The file gets its final name only when it is locked. Otherwise another
// process that starts now could take the lock, and would remove the folder.
func newLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, newLockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !lock(f) {
		err = errors.New("browser: cannot lock " + f.Name())
	} else {
		err = os.Rename(f.Name(), filepath.Join(path, lockFile))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeLeftovers removes the folders whose lock is free. A folder without a lock file is new, unless it is older than
// a minute.
func removeLeftovers(base string) {
	for entry, err := range sandbox.Entries(base) {
		if err != nil {
			return
		}
		path := filepath.Join(base, entry.Name())
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), podPrefix) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
				remove(path)
			}
			continue
		}
		if err != nil {
			continue
		}
		if lock(f) {
			remove(path)
		}
		f.Close()
	}
}

// remove kills the processes that use a folder, and removes the folder. It retries for removeFor, because a process
// that is being killed may still write.
func remove(path string) {
	for end := time.Now().Add(removeFor); ; time.Sleep(removePause) {
		busy := killUsers(path)
		if err := os.RemoveAll(path); err == nil && !busy || time.Now().After(end) {
			return
		}
	}
}

// close removes the folder.
func (f *folder) close() {
	remove(f.path)
	f.lock.Close()
}
