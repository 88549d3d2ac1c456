package ws_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
	"github.com/farhand/farhand/ws"
)

// byTenantAndUser takes "tenant/user" for a token, and "tenant/" for the one token of a tenant.
func byTenantAndUser(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	tenant, user, _ := strings.Cut(token, "/")
	return auth.Identity{Tenant: tenant, User: user, Roles: auth.RoleDevice, Credential: auth.CredentialToken}, nil
}

// connectAll connects devices with a token until one is refused, and returns them.
func (g *gateway) connectAll(token string) (all []*device) {
	g.t.Helper()
	for {
		conn, resp, err := websocket.DefaultDialer.Dial(g.url(""), http.Header{"Authorization": {"Bearer " + token}})
		if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
			return all
		}
		must(g.t, err)
		g.t.Cleanup(func() { _ = conn.Close() })
		d := &device{t: g.t, conn: conn}
		d.expect("session_start")
		all = append(all, d)
	}
}

// Half of a pod's connections are for one identity and three quarters for one tenant, which the holders of one token
// have together. Others find room, and what ends makes room again.
func TestConnectionsAreShared(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Auth, c.MaxSockets = auth.AuthenticatorFunc(byTenantAndUser), 64 })
	anna := g.connectAll("hostile/anna")
	if len(anna) != 32 {
		t.Errorf("an identity has %d of 64 connections", len(anna))
	}
	if ben := g.connectAll("hostile/ben"); len(ben) != 16 {
		t.Errorf("another one of its tenant has %d more", len(ben))
	}
	for token, want := range map[string]string{"hostile/anna": "This identity", "hostile/carl": "This tenant"} {
		status, problem, header := g.refusal("", http.Header{"Authorization": {"Bearer " + token}})
		message := fmt.Sprint(problem["detail"])
		if status != http.StatusTooManyRequests || problem["code"] != "busy" || header.Get("Retry-After") == "" ||
			!strings.Contains(message, want) {
			t.Errorf("%s: refused with %d %v %v", token, status, problem, header)
		}
	}
	if other := g.connectAll("other/"); len(other) != 12 {
		t.Errorf("the one token of another tenant has %d of the 16 that are left", len(other))
	}
	must(t, anna[0].conn.Close())
	eventually(t, "there is room again", func() bool {
		conn, resp, err := websocket.DefaultDialer.Dial(g.url(""),
			http.Header{"Authorization": {"Bearer hostile/anna"}})
		if err != nil && resp != nil && resp.StatusCode == http.StatusTooManyRequests {
			return false
		}
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return true
	})
}

// While as many sessions of one tenant are opened as may be, and thousands wait, those of another one are opened.
func TestOpeningsAreShared(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Auth = auth.AuthenticatorFunc(byTenantAndUser) })
	opened := func() error {
		conn, _, err := websocket.DefaultDialer.Dial(g.url(""), http.Header{"Authorization": {"Bearer other/"}})
		if err != nil {
			return err
		}
		defer conn.Close()
		(&device{t: t, conn: conn}).expect("session_start")
		return nil
	}
	other := testkit.Alone(t, "sessions being opened", opened)
	release := make(chan struct{})
	claim := func() error { <-release; return nil }
	g.store.claim.Store(&claim)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	const many = 200
	for range many {
		go func() {
			defer func() { ended <- struct{}{} }()
			conn, _, err := websocket.DefaultDialer.DialContext(ctx, g.url(""),
				http.Header{"Authorization": {"Bearer hostile/"}})
			if err == nil {
				<-ctx.Done()
				_ = conn.Close()
			}
		}()
	}
	eventually(t, "the hostile tenant opens as many as it may", func() bool {
		s := g.server.Stats()
		return s.Opening == 32 && s.Queued == many-32
	})
	g.store.claim.Store(nil)
	must(t, opened())
	if s := g.server.Stats(); s.Opening != 32 {
		t.Errorf("the other one was opened when %d were left", s.Opening)
	}
	other.Crowded()
	close(release)
	leave()
	for range many {
		<-ended
	}
}

// A device that hangs up while it waits to be opened is no fault of the pod.
func TestADeviceThatLeavesTheLineIsNoFault(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	release := make(chan struct{})
	claim := func() error { <-release; return nil }
	g.store.claim.Store(&claim)
	var dials sync.WaitGroup
	defer dials.Wait()
	defer close(release)
	for i := range 32 {
		dials.Go(func() {
			query := fmt.Sprintf("session_id=s%d&token=%s", i, testToken)
			if conn, _, err := websocket.DefaultDialer.Dial(g.url(query), nil); err == nil {
				_ = conn.Close()
			}
		})
	}
	eventually(t, "as many as may are being opened", func() bool { return g.server.Stats().Opening == 32 })
	late, err := net.Dial("tcp", g.http.Listener.Addr().String())
	must(t, err)
	defer late.Close()
	_, err = fmt.Fprintf(late, "GET /ws/chat?token=%s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", testToken)
	must(t, err)
	eventually(t, "one waits", func() bool { return g.server.Stats().Queued == 1 })
	must(t, late.Close())
	eventually(t, "it has left", func() bool { return g.server.Stats().Refused[registry.CodeCancelled] == 1 })
	if n := g.server.Stats().Refused[registry.CodeInternal]; n != 0 {
		t.Errorf("%d internal errors", n)
	}
}

// Attributes beyond the few that most devices have are shared like connections: one tenant with devices at the limits
// of a session leaves room for others, and for its own devices with few attributes.
func TestAttributesAreShared(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Auth, c.MaxSockets = auth.AuthenticatorFunc(byTenantAndUser), 8 })
	dial := func(token string) *device {
		conn, _, err := websocket.DefaultDialer.Dial(g.url(""), http.Header{"Authorization": {"Bearer " + token}})
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		d := &device{t: t, conn: conn}
		d.expect("session_start")
		return d
	}
	var labels []string
	for i := range registry.MaxLabels {
		labels = append(labels, fmt.Sprintf(`"%060d":"%s"`, i, strings.Repeat("x", 250)))
	}
	most := `{"type":"connect","capabilities":["ack"],"labels":{` + strings.Join(labels, ",") + `}}`
	hostile := dial("hostile/anna")
	hostile.send(most)
	hostile.expect("connected")
	hostile.send(most) // changes nothing, so it takes nothing
	hostile.expect("connected")
	for _, token := range []string{"hostile/anna", "hostile/ben"} {
		d := dial(token)
		d.send(most)
		d.expectError("RATE_LIMITED", "labels")
		d.send(`{"type":"connect","device_name":"lamp","labels":{"room":"hall"},"capabilities":["ack","cancel"]}`)
		d.expect("connected")
	}
	other := dial("other/carl")
	other.send(most)
	other.expect("connected")
	must(t, other.conn.Close())
	must(t, hostile.conn.Close())
	registrytest.Eventually(t, "what has left makes room", func() bool {
		return g.server.Pools()["attribute_bytes"].Held == 0
	})
}

// A device that reads stays connected when others of its tenant do not, and fill what their tenant may have: the one of
// them that holds most is closed.
func TestTheSlowestIsClosed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxOutbound, c.MaxUnsent = 1<<20, 1 })
	send := func(session string, n int) int {
		t.Helper()
		unsent, err := ws.Send(g.server, session, n)
		must(t, err)
		return unsent
	}
	reading := g.connect("reading")
	for session, most := range map[string]int{"most": 900 << 10, "less": 600 << 10, "least": 400 << 10} { // of 2 MiB
		g.connect(session)
		full := 0
		registrytest.Eventually(t, "the system takes no more of "+session, func() bool {
			for full++; send(session, 0) < most; full = 0 {
				send(session, 32<<10)
			}
			return full == 10
		})
	}
	for range 3 {
		send("reading", 256<<10)
		reading.expect("event")
	}
	registrytest.Eventually(t, "one is closed", func() bool { return g.server.Stats().Open == 3 })
	if n := g.server.Stats().Closed["slow_consumer"]; n != 1 {
		t.Errorf("%d are closed as slow", n)
	}
	if _, err := ws.Send(g.server, "most", 0); err == nil {
		t.Error("it is not the one that holds most")
	}
}

// Behind a NAT or a load balancer all devices have one address. An identity, or a tenant, that takes all that the
// address may open leaves others a share of their own.
func TestOpensBehindOneAddressAreShared(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.Auth, c.MaxOpensPerSecond, c.OpensBurst = auth.AuthenticatorFunc(byTenantAndUser), 0.001, 32
	})
	for _, of := range []struct {
		token string
		want  int
	}{
		{"hostile/anna", 2 + 32}, {"hostile/ben", 2}, {"hostile/carl", 2}, {"hostile/dora", 2}, {"hostile/eve", 0},
		{"other/ada", 2}, {"third/", 2},
	} {
		if all := g.connectAll(of.token); len(all) != of.want {
			t.Errorf("%s opens %d sessions, want %d", of.token, len(all), of.want)
		}
	}
}

// What devices of one tenant make the gateway log by connecting again and again is bounded, the rest is there for
// debugging, and the lines of another tenant are written.
func TestLinesOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	g := newGateway(t, func(c *ws.Config) {
		c.Auth = auth.AuthenticatorFunc(byTenantAndUser)
		c.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	const devices = 40
	for i := range devices {
		token := "hostile/" + fmt.Sprint(i)
		if i == devices-1 {
			token = "other/"
		}
		conn, _, err := websocket.DefaultDialer.Dial(g.url(""), http.Header{"Authorization": {"Bearer " + token}})
		must(t, err)
		(&device{t: t, conn: conn}).expect("session_start")
		must(t, conn.Close())
		g.waitReleased()
	}
	count := func(level, message string) (n, others int) {
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level="+level) && strings.Contains(line, message) {
				n++
				if strings.Contains(line, "tenant=other") {
					others++
				}
			}
		}
		return n, others
	}
	for _, message := range []string{"device connected", "device disconnected"} {
		registrytest.Eventually(t, "all are logged", func() bool {
			n, _ := count("INFO", message)
			more, _ := count("DEBUG", message)
			return n+more == devices
		})
		if n, others := count("INFO", message); n < 11 || n > devices/2 || others != 1 {
			t.Errorf("%s: %d lines, %d of the other tenant", message, n, others)
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	to io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
