package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Valkey starts a valkey-server: the one on the PATH, else the one that `make deps` put into .cache/bin.
func Valkey(t testing.TB, args ...string) *Server {
	t.Helper()
	program, err := exec.LookPath("valkey-server")
	if err != nil {
		program = filepath.Join(moduleRoot(t), ".cache", "bin", "valkey-server")
		if _, err := os.Stat(program); err != nil {
			t.Fatal("redistest: valkey-server is not on the PATH and not in .cache/bin; get it with: make deps")
		}
	}
	return startProgram(t, program, args...)
}

// moduleRoot returns the folder of go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("redistest: not inside the module")
		}
		dir = filepath.Dir(dir)
	}
}

// TLS starts a server that also listens with TLS, with a certificate of a private authority. It returns its URL and the
// file with the authority's certificate.
func TLS(t testing.TB) (url, caFile string) {
	t.Helper()
	dir := t.TempDir()
	caFile = filepath.Join(dir, "ca.pem")
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "private authority"},
		IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, IPAddresses: []net.IP{net.ParseIP(host)},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, serverKey := newKey(t), newKey(t)
	writeCertificate(t, caFile, authority, authority, authorityKey, authorityKey)
	writeCertificate(t, certFile, server, authority, serverKey, authorityKey)
	der, err := x509.MarshalECPrivateKey(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "EC PRIVATE KEY", der)
	port := strconv.Itoa(freePort(t))
	Start(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", caFile,
		"--tls-auth-clients", "no")
	return "rediss://" + net.JoinHostPort(host, port), caFile
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeCertificate(t testing.TB, path string, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, path, "CERTIFICATE", der)
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
