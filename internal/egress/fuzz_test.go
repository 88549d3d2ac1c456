package egress_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/egress"
	"github.com/farhand/farhand/internal/publicnet"
)

// FuzzURLGuard asks a proxy for whatever host there may be, whose name has whatever address: nothing but public
// addresses is ever dialled, and only at the ports that are open.
func FuzzURLGuard(f *testing.F) {
	for _, host := range []string{"127.0.0.1:80", "0x7f.1:80", "localhost:443", "a.test:80", "[::1]:80",
		"[::ffff:7f00:1]:443", "a.test:22", "169.254.169.254:80", "2130706433:80", "a.test", "a@b:80",
		"[fe80::1%25lo]:80", "0:80", "a.test:080", "127。0。0。1:80", "%31.1:80"} {
		f.Add(host, []byte{127, 0, 0, 1}, true)
		f.Add(host, []byte{93, 184, 216, 34}, false)
	}
	f.Fuzz(func(t *testing.T, host string, address []byte, connect bool) {
		if strings.ContainsAny(host, "\r\n") || len(host) > 1000 {
			return
		}
		n := &network{}
		if addr, ok := netip.AddrFromSlice(address); ok {
			n.addrs = []netip.Addr{addr}
		}
		p := newProxy(t, n, egress.Config{})
		request := "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\nAUTH\r\nConnection: close\r\n\r\n"
		if connect {
			request = "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\nAUTH\r\nConnection: close\r\n\r\n"
		}
		status, _, conn := raw(t, p, request)
		conn.Close()
		p.Close() // the answer is there: so is what was dialled for it
		for _, a := range n.dialed {
			if publicnet.KindOf(a.Addr()) != publicnet.Public || a.Port() != 80 && a.Port() != 443 {
				t.Errorf("%q with address %v: dialled %v, %s", host, n.addrs, a, status)
			}
		}
	})
}
