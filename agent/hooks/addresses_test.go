package hooks_test

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent/hooks"
)

// A hook that is pointed at where credentials are handed out, or at this machine, asks nobody, however that is written.
// What its configuration cannot tell, the socket does.
func TestHooksAtForbiddenAddresses(t *testing.T) {
	var connected atomic.Int32
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connected.Add(1)
			conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for host, refusedAtStart := range map[string]bool{
		"169.254.169.254": true, "[::ffff:169.254.169.254]": true, "[fd00:ec2::254]": true, "100.100.100.200": true,
		"168.63.129.16": true, "0.0.0.0": true, "[::]": true, "127.0.0.1": true, "[::1]": true, "10.0.0.1": true,
		"[fe80::1%25eth0]": true, "[64:ff9b::7f00:1]": true,
		"localhost": false, "localhost.": false, "2130706433": false, "0x7f000001": false, "0177.0.0.1": false,
		"2852039166": false, "0xa9fea9fe": false, "127.1": false,
	} {
		for _, private := range []bool{false, true} {
			allowed := private && (strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "10.") ||
				host == "[::1]" || host == "localhost" || host == "localhost.")
			if allowed {
				continue
			}
			c := hooks.Config{Name: "guard", URL: "https://" + host + ":" + port + "/latest/meta-data/",
				Secret: secret, Before: true, AllowPrivate: private}
			if err := c.Check(); (err != nil) != refusedAtStart {
				t.Errorf("%s, private addresses allowed %v: %v", host, private, err)
			}
			if refusedAtStart || private { // a number may be this machine's address for the system's resolver
				continue
			}
			h, log := open(t, c.URL, func(cfg *hooks.Config) { cfg.AllowPrivate = false })
			_, err := before(t.Context(), h)
			wantStopped(t, err)
			if host == "localhost" && !strings.Contains(log.String(), "address refused") {
				t.Errorf("%s: %s", host, log)
			}
		}
	}
	listener.Close()
	<-done
	if connected.Load() != 0 {
		t.Errorf("%d connections to this machine", connected.Load())
	}
}

// A proxy that the environment names is not asked: it would connect to whatever it is told.
func TestHooksUseNoProxy(t *testing.T) {
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	t.Setenv("HTTP_PROXY", proxy.URL)
	s := serve(t, say(`{"decision":"continue"}`))
	h, _ := open(t, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), nil)
	if _, err := before(t.Context(), h); err != nil {
		t.Error(err)
	}
}
