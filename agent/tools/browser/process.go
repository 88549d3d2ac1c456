package browser

import (
	"bytes"
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

// process is one Chromium with its profile. It implements chromedp.Allocator for the one browser that it is.
type process struct {
	group   *procgroup.Group
	scale   *scale
	profile string // folder
	conn    *chromedp.PipeConn
	said    *tail
	greedy  atomic.Bool   // it was killed because it took too much memory
	done    chan struct{} // closed when it has ended
}

// startProcess starts Chromium.
func startProcess(cfg Config, scale *scale, program, dir, proxy string) (*process, error) {
	profile, err := os.MkdirTemp(dir, "profile-")
	if err != nil {
		return nil, err
	}
	p := &process{profile: profile, scale: scale, done: make(chan struct{})}
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
		// The kernel kills the process when the thread that started it ends: this one stays.
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
	// A page may ask for any number of bytes, and what it stores is in memory, too.
	p.scale.put(filepath.Base(p.profile), load{most: cfg.Memory, ended: p.done, heavy: func() {
		p.greedy.Store(true)
		p.kill()
	}})
	p.said = newTail(said)
	p.conn = chromedp.NewPipeConn(&bounded{ReadCloser: ourIn}, ourOut)
	return nil
}

// Allocate implements chromedp.Allocator.
func (p *process) Allocate(ctx context.Context, opts ...chromedp.BrowserOption) (*chromedp.Browser, error) {
	return chromedp.NewBrowserTransport(ctx, p.conn, opts...)
}

// Wait implements chromedp.Allocator.
func (p *process) Wait() { <-p.done }

// Attaches implements chromedp.Attacher: the process is not chromedp's to end.
func (p *process) Attaches() bool { return true }

// kill ends the process, from any goroutine.
func (p *process) kill() { _ = p.group.Kill() }

// close ends the process with all it has started, and removes its profile.
func (p *process) close() {
	p.kill()
	_ = p.conn.Close()
	<-p.done
	p.scale.takeOff(filepath.Base(p.profile))
	p.said.close() // not at its end: children may hold it open for a moment
	remove(p.profile)
}

// complaint is what the process said last, for an operator.
func (p *process) complaint() error {
	text := p.said.String()
	if strings.Contains(text, "sandbox") {
		return errors.New("the sandbox of Chromium does not work here (no user namespaces?): allow the gateway's " +
			"user some, or set FARHAND_BROWSER_NO_SANDBOX")
	}
	return fmt.Errorf("no browser: Chromium did not start: %s", text)
}

// tail keeps the end of what comes out of a pipe.
type tail struct {
	from *os.File
	done chan struct{}

	mu   sync.Mutex
	text []byte
}

const maxTail = 2 << 10

func newTail(from *os.File) *tail {
	t := &tail{from: from, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, _ = io.Copy(t, from)
	}()
	return t
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if more := len(t.text) - maxTail; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(b), nil
}

// String returns what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// close stops reading.
func (t *tail) close() {
	t.from.Close()
	<-t.done
}

// bounded is what Chromium says, up to a message that is too long: pages decide how much there is of it.
type bounded struct {
	io.ReadCloser
	run int // bytes since the last message ended
}

// Read implements io.Reader.
func (b *bounded) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if i := bytes.LastIndexByte(buf[:n], 0); i >= 0 {
		b.run = n - i - 1
	} else if b.run += n; b.run > maxMessage {
		return 0, errors.New("browser: a message is too long")
	}
	return n, err
}

// programs are where Chromium may be. Debian's /usr/bin/chromium is a script that adds flags and keys of Google: the
// program behind it is taken.
var programs = [...]string{
	"/usr/lib/chromium/chromium", "chromium", "chromium-browser", "/opt/google/chrome/chrome", "google-chrome-stable",
	"google-chrome", "headless-shell",
}

// Probe starts Chromium and ends it again. The error says why there can be no browser here, and what to do.
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

// find returns the program of Chromium. The error says why there is none, and what to do.
func find(cfg Config) (string, error) {
	if !supported {
		return "", errors.New("the tool browser works on Linux only")
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
	return "", errors.New("no Chromium was found: install it (Debian: apt-get install chromium), or name its program " +
		"with FARHAND_BROWSER")
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

// folder is where one process keeps its profiles. It has a lock on it, so that the next process knows the folders of
// those that are gone.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder below dir, and removes those of processes that are gone, with what still runs there.
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

// newLock makes the file with the lock of a folder. It has its name when it is locked: another process that starts now
// takes the lock of a file it finds, and would remove the folder.
func newLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, newLockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !lock(f) {
		err = errors.New("browser: no lock on " + f.Name() + " can be had")
	} else {
		err = os.Rename(f.Name(), filepath.Join(path, lockFile))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeLeftovers removes the folders nobody has a lock on. One that has no lock yet is being made, unless it is old.
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

// remove kills what still uses a folder and removes it. A process that is being killed may write for a moment.
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
