package certificate

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// A broken new pair keeps the old one, and is logged once: not while one of the files is still the old one, and not
// again while nothing changes. A good pair is then taken.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir, year := t.TempDir(), time.Now().AddDate(1, 0, 0)
	cert, key := testkit.Certificate(t, dir, year)
	var log bytes.Buffer
	f, err := Open(cert, key, time.Hour, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inUse := func() string {
		pair, _ := f.Get(nil)
		return Fingerprint(pair.Leaf)
	}
	first := inUse()
	other, otherKey := testkit.Certificate(t, t.TempDir(), year)
	old, oldKey := testkit.Certificate(t, t.TempDir(), time.Now().Add(-time.Hour))
	for _, tt := range []struct{ name, cert, key, says string }{
		{"a certificate of another key", other, key, "does not match"},
		{"an expired pair", old, oldKey, "expired on"},
		{"no certificate", "/dev/null", key, "PEM"},
		{"no file", "", key, "no such file"},
	} {
		put(t, tt.cert, cert)
		if tt.key != key {
			put(t, tt.key, key)
		}
		f.Reload()
		if log.Len() > 0 {
			t.Errorf("%s: logged before the files were read twice:\n%s", tt.name, &log)
		}
		f.Reload()
		f.Reload()
		if status := f.Status(); !status.Refused || status.Expires.Before(time.Now()) {
			t.Errorf("%s: %+v", tt.name, status)
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), tt.says) || inUse() != first {
			t.Errorf("%s: %s is in use, logged is\n%s", tt.name, inUse(), &log)
		}
		log.Reset()
	}
	put(t, other, cert)
	put(t, otherKey, key)
	f.Reload()
	if want, _ := Load(other, otherKey); f.Status().Refused || inUse() != Fingerprint(want.Leaf) ||
		!strings.Contains(log.String(), inUse()) {
		t.Errorf("%s is in use, logged is\n%s", inUse(), &log)
	}
}

// put copies a file, or removes the other if its name is empty.
func put(t *testing.T, from, to string) {
	t.Helper()
	if from == "" {
		if err := os.Remove(to); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The files are polled, and no longer after Close.
func TestFilesAreWatched(t *testing.T) {
	t.Parallel()
	dir, year := t.TempDir(), time.Now().AddDate(1, 0, 0)
	cert, key := testkit.Certificate(t, dir, year)
	f, err := Open(cert, key, time.Millisecond, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := f.Get(nil)
	testkit.Certificate(t, dir, year)
	testkit.Eventually(t, "the new certificate is in use", func() bool {
		now, _ := f.Get(nil)
		return now != first
	})
	f.Close()
}

func TestOpenToOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key.pem")
	for mode, open := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o602: true} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if OpenToOthers(path) != open {
			t.Errorf("%o: open to others is %t", mode, !open)
		}
	}
}

// A certificate is noted when its renewal is late: by days, and by its own length if that is short.
func TestSoon(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for _, tt := range []struct {
		life, left time.Duration
		soon       bool
	}{
		{365 * day, 15 * day, false}, {365 * day, 13 * day, true}, {90 * day, 16 * day, false},
		{90 * day, 13 * day, true}, {6 * day, 3 * day, false}, {6 * day, day, true}, {30 * day, 6 * day, false},
		{30 * day, 4 * day, true},
	} {
		cert := &x509.Certificate{NotBefore: now.Add(tt.left - tt.life), NotAfter: now.Add(tt.left)}
		if err := Soon(cert, now); (err != nil) != tt.soon {
			t.Errorf("%v of %v are left: %v", tt.left, tt.life, err)
		}
	}
}
