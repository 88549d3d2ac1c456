package redistest

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
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

// TLS starts a server that also listens with TLS, with the certificate of net/http/httptest, which no system trusts. It
// returns its URL and the file with the certificate's authority.
func TLS(t testing.TB) (url, caFile string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0] // its own authority
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	caFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, caFile, "CERTIFICATE", pair.Certificate[0])
	writePEM(t, keyFile, "PRIVATE KEY", der)
	port := strconv.Itoa(freePort(t))
	Start(t, "--tls-port", port, "--tls-cert-file", caFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", caFile,
		"--tls-auth-clients", "no")
	return "rediss://" + net.JoinHostPort(host, port), caFile
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
