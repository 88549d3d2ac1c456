package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/pause"
)

// DefaultInterval is how often the files are read.
const DefaultInterval = 2 * time.Second

// Files is a certificate that follows its files. It polls them, which works on any file system, also for a symbolic
// link that Kubernetes points to another folder. It is safe for concurrent use.
type Files struct {
	cert, key string
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate]
	stop      context.CancelFunc
	done      sync.WaitGroup

	mu      sync.Mutex
	last    contents // read last, in use or not
	failed  bool     // last is not in use
	refused string   // why, as logged; empty: not logged
}

// contents are those of both files. Without an error in reading them, err is nil.
type contents struct {
	cert, key []byte
	err       error
}

func (c contents) equal(other contents) bool {
	if c.err != nil || other.err != nil {
		return c.err != nil && other.err != nil && c.err.Error() == other.err.Error()
	}
	return bytes.Equal(c.cert, other.cert) && bytes.Equal(c.key, other.key)
}

// Open returns the certificate of two PEM files, which follows them until Close. Open fails as Load does. Later, files
// that cannot be used, or whose certificate has expired, leave the certificate unchanged and are logged once.
func Open(certFile, keyFile string, interval time.Duration, log *slog.Logger) (*Files, error) {
	f := &Files{cert: certFile, key: keyFile, log: log}
	f.last = f.read()
	pair, err := f.last.pair()
	if err != nil {
		return nil, err
	}
	f.current.Store(pair)
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.done.Go(func() {
		for pause.For(ctx, interval) == nil {
			f.Reload()
		}
	})
	return f, nil
}

func (f *Files) read() (c contents) {
	var certErr, keyErr error
	c.cert, certErr = read(f.cert)
	c.key, keyErr = read(f.key)
	c.err = errors.Join(certErr, keyErr)
	return c
}

func (c contents) pair() (*tls.Certificate, error) {
	if c.err != nil {
		return nil, c.err
	}
	return parse(c.cert, c.key)
}

// Reload reads the files now. New files that cannot be used are logged only if a second reading finds them unchanged:
// the first may come between the replacement of one file and of the other.
func (f *Files) Reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.read()
	again := now.equal(f.last)
	if again && !f.failed {
		return
	}
	f.last = now
	pair, err := now.pair()
	if err == nil {
		err = Valid(pair.Leaf, time.Now())
	}
	if err == nil {
		f.current.Store(pair)
		f.failed, f.refused = false, ""
		f.log.Info("certificate reloaded", "file", f.cert, "certificate", Describe(pair.Leaf))
		return
	}
	f.failed = true
	if again && f.refused != err.Error() {
		f.refused = err.Error()
		f.log.Error("certificate not reloaded; the previous one stays in use", "file", f.cert, "key", f.key, "error", err)
	}
}

// Status is the state of the files.
type Status struct {
	Refused bool      // they cannot be used, and an earlier certificate is in use
	Expires time.Time // of the certificate in use
}

// Status returns the state of the files.
func (f *Files) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{Refused: f.refused != "", Expires: f.current.Load().Leaf.NotAfter}
}

// Get implements tls.Config.GetCertificate.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil }

// Close stops reading the files. The certificate stays in use.
func (f *Files) Close() {
	f.stop()
	f.done.Wait()
}
