// Package certificate reads the certificate of a TLS server from files, and reads them again when they change.
package certificate

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
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
