package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chromedp/chromedp"

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
