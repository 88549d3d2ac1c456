// Package certificate reads the certificate of a TLS server from files, and reads them again when they change.
package certificate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/pause"
)

const maxFile = 1 << 20 // bytes

// Load reads a certificate, with those of its issuers if any, and its private key, from PEM files. It fails if they do
// not belong together. The result has its Leaf.
func Load(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := read(certFile)
	if err != nil {
		return nil, err
	}
	key, err := read(keyFile)
	if err != nil {
		return nil, err
	}
	return parse(cert, key)
}

func parse(cert, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

func read(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path) // opening a pipe could wait forever
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: the file is longer than 1 MiB", path)
	}
	return text, err
}

// Valid returns why clients reject a certificate at a time, whatever its issuer.
func Valid(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(cert.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", day(cert.NotBefore))
	case now.After(cert.NotAfter):
		return fmt.Errorf("the certificate expired on %s", day(cert.NotAfter))
	case len(cert.DNSNames)+len(cert.IPAddresses) == 0:
		return errors.New("the certificate names no host (subjectAltName)")
	}
	return nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// OpenToOthers reports whether other users of this machine can read a file.
func OpenToOthers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0
}

// Describe returns whom a certificate is for, how long it is valid, and its fingerprint.
func Describe(cert *x509.Certificate) string {
	names := cert.DNSNames
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return fmt.Sprintf("for %s, until %s, SHA-256 %s", strings.Join(names, ", "), day(cert.NotAfter), Fingerprint(cert))
}

// Fingerprint returns the SHA-256 digest of a certificate as browsers show it.
func Fingerprint(cert *x509.Certificate) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(cert.Raw)), " ", ":")
}

// Soon returns when a certificate that is valid expires, if that is so soon that its renewal is late: within 14 days,
// or, if it was issued for less than 84 days, within a sixth of that time, at least two days.
func Soon(cert *x509.Certificate, now time.Time) error {
	const least, most = 2 * 24 * time.Hour, 14 * 24 * time.Hour
	left := cert.NotAfter.Sub(now)
	if left > min(max(cert.NotAfter.Sub(cert.NotBefore)/6, least), most) {
		return nil
	}
	return fmt.Errorf("the certificate expires on %s, in %d hours: renew it now, and find out why its renewal did "+
		"not run", day(cert.NotAfter), int(left.Hours()))
}

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
		f.log.Error("certificate not reloaded; the previous one stays in use",
			"file", f.cert, "key", f.key, "error", err)
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
