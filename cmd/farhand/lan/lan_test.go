package lan

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/certificate"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestReach(t *testing.T) {
	t.Parallel()
	r := reach(addrs("fe80::1", "fd00::2", "172.16.0.9", "192.168.1.5", "203.0.113.7", "100.64.1.1", "2001:db8::1",
		"10.0.0.3", "169.254.1.1", "10.0.0.3"), netip.MustParseAddr("192.168.1.5"), "Ada.home.")
	if want := addrs("192.168.1.5", "10.0.0.3", "100.64.1.1", "172.16.0.9", "fd00::2"); !slices.Equal(r.Private, want) {
		t.Errorf("private: %v, want %v", r.Private, want)
	}
	if want := addrs("203.0.113.7"); !slices.Equal(r.Public, want) {
		t.Errorf("public: %v, want %v", r.Public, want)
	}
	if want := addrs("192.168.1.5", "10.0.0.3", "100.64.1.1", "172.16.0.9", "203.0.113.7", "fd00::2"); !slices.Equal(
		r.All(), want) {
		t.Errorf("all: %v, want %v", r.All(), want)
	}
	if want := []string{"ada.home", "ada.local"}; !slices.Equal(r.Names, want) {
		t.Errorf("names: %v, want %v", r.Names, want)
	}
	for _, host := range []string{"", "localhost", "localhost.localdomain", "a_b", "-a", "a..b", "mac\nbook", "кот"} {
		if r := reach(nil, netip.Addr{}, host); r.Names != nil {
			t.Errorf("%q: %v", host, r.Names)
		}
	}
}

// Here is what a machine has: it must not fail, whatever its interfaces.
func TestFind(t *testing.T) {
	t.Parallel()
	r, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.All() {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.Zone() != "" {
			t.Errorf("other devices cannot use %s", a)
		}
	}
}

// The certificate stays as long as it may: a phone that accepted it is asked again whenever there is another.
func TestKeep(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "a", "tls"), time.Now()
	home := Reach{Private: addrs("192.168.1.5", "fd00::2"), Names: []string{"ada", "ada.local"}}
	var fingerprints []string
	keep := func(r Reach, now time.Time, made bool) Certificate {
		t.Helper()
		c, err := Keep(dir, r, now)
		if err != nil {
			t.Fatal(err)
		}
		print := certificate.Fingerprint(c.Leaf)
		if known := slices.Contains(fingerprints, print); c.Made != made || known == made {
			t.Errorf("made: %t, want %t; the fingerprint was known: %t", c.Made, made, known)
		}
		fingerprints = append(fingerprints, print)
		pair, err := certificate.Load(c.Pair, c.Pair)
		if err != nil || certificate.Fingerprint(pair.Leaf) != print {
			t.Errorf("the files have another certificate: %v", err)
		}
		for _, path := range []string{c.Pair, c.Cert} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
		return c
	}
	c := keep(home, now, true)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "ada", "ada.local", "192.168.1.5", "fd00::2"} {
		if err := c.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if days := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore).Hours() / 24; days > 397 {
		t.Errorf("valid for %.1f days", days)
	}
	keep(home, now, false)
	keep(Reach{Private: addrs("fd00::2", "fd00::3"), Names: home.Names}, now, false)
	keep(Reach{}, now.Add(300*24*time.Hour), false)
	keep(home, now.Add(370*24*time.Hour), true)
	keep(home, now, true) // the clock was put back
	keep(Reach{Private: addrs("192.168.7.5"), Names: home.Names}, now, true)
	keep(Reach{Private: addrs("192.168.7.5", "fd00::3"), Names: home.Names}, now, true)
	keep(Reach{Private: addrs("192.168.7.5"), Names: []string{"bob"}}, now, true)
	public := Reach{Public: addrs("203.0.113.7")}
	if c := keep(public, now, true); !slices.Equal(c.Covered(public), public.Public) {
		t.Errorf("covered: %v", c.Covered(public))
	}
	if err := os.Chmod(c.Pair, 0o644); err != nil { // so the key may have been read
		t.Fatal(err)
	}
	keep(Reach{}, now, true)
	if err := os.WriteFile(c.Pair, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep(Reach{}, now, true)
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); left != nil {
		t.Errorf("left: %q", left)
	}
}
