package publicnet_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/publicnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds has at least one address of each network that is not public, and the neighbours of some.
var kinds = map[publicnet.Kind][]string{
	publicnet.Public: {
		"1.1.1.1", "93.184.216.34", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450::1", "2001:4860::8888",
		"::ffff:1.1.1.1", "3ffe::1",
	},
	publicnet.Private: {
		"127.0.0.1", "127.255.255.255", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1",
		"100.64.0.1", "100.127.255.255", "::1", "fc00::1", "fd12:3456::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
	},
	publicnet.Never: {
		"0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "192.0.0.170", "192.0.0.192", "192.0.2.1",
		"192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255",
		"240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16",
		"::", "::7f00:1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::1.1.1.1", "64:ff9b:1::1", "100::1", "2001::1",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
		"2002:101:101::1", "3fff::1", "5f00::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "fd00:ec2::254",
		"fd20:ce::254", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "2606:4700::1%eth0", "4000::1",
	},
}

func TestKinds(t *testing.T) {
	for kind, addrs := range kinds {
		for _, text := range addrs {
			if got := publicnet.KindOf(netip.MustParseAddr(text)); got != kind {
				t.Errorf("%s is of kind %d, not %d", text, got, kind)
			}
		}
	}
	if publicnet.KindOf(netip.Addr{}) != publicnet.Never {
		t.Error("no address is one")
	}
}

func TestGuard(t *testing.T) {
	for kind, addrs := range kinds {
		for _, text := range addrs {
			addr := netip.MustParseAddr(text)
			for private, want := range map[bool]bool{
				false: kind == publicnet.Public, true: kind != publicnet.Never,
			} {
				err := publicnet.Guard{AllowPrivate: private}.Check(addr)
				if (err == nil) != want || err != nil && !errors.Is(err, publicnet.ErrRefused) {
					t.Errorf("%s, private addresses allowed %v: %v", text, private, err)
				}
			}
		}
	}
	for _, bad := range []struct{ network, address string }{
		{"udp4", "1.1.1.1:53"}, {"unix", "/run/x"}, {"tcp4", "example.com:80"}, {"tcp4", ""},
	} {
		if err := (publicnet.Guard{AllowPrivate: true}).Control(bad.network, bad.address, nil); err == nil {
			t.Errorf("%s %q is allowed", bad.network, bad.address)
		}
	}
}

// However a host is written, nothing of this machine is reached: neither a server of the test nor, by chance, another.
func TestFormsOfLoopback(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "017700000001", "localhost",
		"localhost.", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "0", "[::]",
		"user:pass@127.0.0.1", "127.0.0.1.", "[::127.0.0.1]", "①②⑦.⓪.⓪.①",
	} {
		for _, guard := range []struct {
			publicnet.Guard
			reached bool
		}{{publicnet.Guard{}, false}, {publicnet.Guard{AllowPrivate: true}, host == "127.0.0.1"}} {
			transport := guard.Transport(2 * time.Second)
			before := asked.Load()
			resp, err := (&http.Client{Transport: transport}).Get("http://" + host + ":" + port)
			if err == nil {
				resp.Body.Close()
			}
			transport.CloseIdleConnections()
			reached := asked.Load() > before
			if reached && !guard.AllowPrivate || guard.reached && !reached {
				t.Errorf("%s, private addresses allowed %v: reached %v, %v", host, guard.AllowPrivate, reached, err)
			}
		}
	}
}

// A name that was looked up and found public is refused when it is another address by the time it is used.
func TestNamesThatChange(t *testing.T) {
	var asked atomic.Int32
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	resolver := resolverOf(t, func() [4]byte {
		if asked.Add(1) == 1 {
			return [4]byte{93, 184, 216, 34}
		}
		return [4]byte{127, 0, 0, 1}
	})
	dialer := publicnet.Guard{}.Dialer(5 * time.Second)
	dialer.Resolver = resolver
	found, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example.")
	if err != nil || len(found) != 1 || (publicnet.Guard{}).Check(found[0]) != nil {
		t.Fatalf("found %v, %v", found, err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	conn, err := dialer.DialContext(t.Context(), "tcp4", "rebind.example.:"+port)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, publicnet.ErrRefused) || asked.Load() != 2 {
		t.Errorf("the second time: %v, asked %d times", err, asked.Load())
	}
}

// A proxy of the environment would connect to whatever it is told.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	if (publicnet.Guard{}).Transport(time.Second).Proxy != nil {
		t.Errorf("there is a proxy with HTTP_PROXY=%s", os.Getenv("HTTP_PROXY"))
	}
}

// resolverOf returns a resolver that asks a server of names which answers every question with one IPv4 address.
func resolverOf(t *testing.T, answer func() [4]byte) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { server.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			server.WriteTo(answerName(buf[:n], answer()), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", server.LocalAddr().String())
	}}
}

// answerName makes the answer to a question for one name of type A.
func answerName(question []byte, addr [4]byte) []byte {
	end := 12 // after the header
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the root, the type and the class
	reply := append([]byte(nil), question[:end]...)
	binary.BigEndian.PutUint16(reply[2:], 0x8180) // an answer, recursion desired and available
	binary.BigEndian.PutUint16(reply[6:], 1)      // one answer
	binary.BigEndian.PutUint32(reply[8:], 0)      // nothing else
	reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(reply, addr[:]...)
}
