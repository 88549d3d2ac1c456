package lan

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/certificate"
)

// Browsers reject certificates that are valid for more than 398 days.
const (
	life  = 396 * 24 * time.Hour
	renew = 30 * 24 * time.Hour // before the end
)

// Certificate is one that this machine made for itself.
type Certificate struct {
	Pair string // PEM file of certificate and private key, for this user only
	Cert string // PEM file of the certificate alone, to give to other devices
	Leaf *x509.Certificate
	Made bool // just now: devices that accepted an earlier one ask again
}

// Keep returns the certificate in a folder. It makes a new one if there is none, if it ends within 30 days, or if it is
// not for the names and addresses of r. An IPv6 network gives a machine new addresses each day: one of these in the
// certificate is enough.
func Keep(dir string, r Reach, now time.Time) (Certificate, error) {
	c := Certificate{Pair: filepath.Join(dir, "tls.pem"), Cert: filepath.Join(dir, "cert.pem")}
	pair, err := certificate.Load(c.Pair, c.Pair)
	if err == nil && certificate.Valid(pair.Leaf, now) == nil && certificate.Valid(pair.Leaf, now.Add(renew)) == nil &&
		covers(pair.Leaf, r) && !certificate.OpenToOthers(c.Pair) {
		c.Leaf = pair.Leaf
		return c, write(c.Cert, encode("CERTIFICATE", c.Leaf.Raw))
	}
	c.Made = true
	cert, key, err := newCertificate(r, now)
	if err != nil {
		return c, fmt.Errorf("make a certificate: %w", err)
	}
	if c.Leaf, err = x509.ParseCertificate(cert); err != nil {
		return c, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, fmt.Errorf("keep the certificate: %w", err)
	}
	if err := write(c.Pair, append(encode("CERTIFICATE", cert), encode("PRIVATE KEY", key)...)); err != nil {
		return c, err
	}
	return c, write(c.Cert, encode("CERTIFICATE", cert))
}

func covers(cert *x509.Certificate, r Reach) bool {
	has := func(a netip.Addr) bool {
		return slices.ContainsFunc(cert.IPAddresses, func(ip net.IP) bool { return ip.Equal(a.AsSlice()) })
	}
	needs6, has6 := false, false
	for _, a := range r.All() {
		if a.Is4() && !has(a) {
			return false
		}
		needs6, has6 = needs6 || a.Is6(), has6 || a.Is6() && has(a)
	}
	return (has6 || !needs6) && !slices.ContainsFunc(r.Names, func(name string) bool {
		return !slices.Contains(cert.DNSNames, name)
	})
}

// Until returns when Keep replaces the certificate, unless the names or addresses change before.
func (c Certificate) Until() time.Time { return c.Leaf.NotAfter.Add(-renew) }

// Covered returns the addresses of r that are in the certificate.
func (c Certificate) Covered(r Reach) []netip.Addr {
	return slices.DeleteFunc(r.All(), func(a netip.Addr) bool { return c.Leaf.VerifyHostname(a.String()) != nil })
}

func newCertificate(r Reach, now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	name := "this machine"
	if len(r.Names) > 0 {
		name = r.Names[0]
	}
	template := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Farhand demo"}, CommonName: short(name)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life), // the clock of a phone may be late
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, // it issues no others
		DNSNames:              append([]string{"localhost"}, r.Names...),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, a := range r.All() {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}
	if cert, err = x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private); err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(private)
	return cert, key, err
}

// short returns a common name: X.509 allows 64 characters.
func short(name string) string { return name[:min(len(name), 64)] }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write replaces a file at once. CreateTemp lets only this user read it.
func write(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("keep the certificate: %w", err)
	}
	_, err = f.Write(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("keep the certificate: %w", err)
	}
	return nil
}
