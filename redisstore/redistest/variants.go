package redistest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
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

// TLS starts a server that also listens with TLS, with a certificate that no system trusts. It returns its URL and the
// file with the certificate's authority.
func TLS(t testing.TB) (url, caFile string) {
	t.Helper()
	url, caFile, _ = startTLS(t, "no")
	return url, caFile
}

// MutualTLS starts a server like TLS that also requires a certificate of its clients. Its authority's, with keyFile, is
// one.
func MutualTLS(t testing.TB) (url, caFile, keyFile string) {
	t.Helper()
	return startTLS(t, "yes")
}

func startTLS(t testing.TB, authClients string) (url, caFile, keyFile string) {
	t.Helper()
	caFile, keyFile = testkit.Certificate(t, t.TempDir(), time.Now().AddDate(1, 0, 0))
	port := strconv.Itoa(freePort(t))
	Start(t, "--tls-port", port, "--tls-cert-file", caFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", caFile,
		"--tls-auth-clients", authClients)
	return "rediss://" + net.JoinHostPort(host, port), caFile, keyFile
}
