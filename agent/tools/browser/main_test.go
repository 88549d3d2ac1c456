//go:build linux

package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/internal/egress"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("BROWSER_TEST_POD"); dir != "" {
		bePod(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// public is the address of all sites of the tests. Nothing of it is ever dialled.
var public = netip.MustParseAddr("93.184.216.34")

// patience bounds the wait for what a page does by itself, after the call that showed it. A busy machine takes long.
const patience = testkit.Limit

// internet is the network of a test: every name that ends in .test has the address public, and what is dialled at
// public is a server of the test. All that is dialled is written down.
type internet struct {
	mux   *http.ServeMux
	site  *httptest.Server
	names map[string]func() []netip.Addr

	mu     sync.Mutex
	dialed []string
	asked  map[string]int
	more   chan struct{} // closed, and replaced, when a name is looked up
}

func newInternet(t *testing.T) *internet {
	n := &internet{mux: http.NewServeMux(), asked: make(map[string]int), more: make(chan struct{}),
		names: make(map[string]func() []netip.Addr)}
	n.site = httptest.NewServer(n.mux)
	t.Cleanup(n.site.Close)
	return n
}

// LookupNetIP implements egress.Resolver.
func (n *internet) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	n.mu.Lock()
	n.asked[host]++
	close(n.more)
	n.more = make(chan struct{})
	n.mu.Unlock()
	if answer := n.names[host]; answer != nil {
		return answer(), nil
	}
	if strings.HasSuffix(host, ".loop.test") {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	if strings.HasSuffix(host, ".test") {
		return []netip.Addr{public}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// Dial is for egress.Config.
func (n *internet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	if addr, err := netip.ParseAddrPort(address); err == nil && addr.Addr() == public {
		address = n.site.Listener.Addr().String()
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// page serves an HTML page.
func (n *internet) page(path, html string) {
	n.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html>"+html)
	})
}

// isAsked waits until a name was looked up, and reports whether it was.
func (n *internet) isAsked(name string) bool {
	end := time.After(patience)
	for {
		n.mu.Lock()
		asked, more := n.asked[name] > 0, n.more
		n.mu.Unlock()
		if asked {
			return true
		}
		select {
		case <-more:
		case <-end:
			return false
		}
	}
}

// elsewhere returns what was dialled but the sites.
func (n *internet) elsewhere() (other []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, address := range n.dialed {
		if !strings.HasPrefix(address, public.String()+":") {
			other = append(other, address)
		}
	}
	return other
}

// bench is a browser of one session, and its network.
type bench struct {
	*testing.T
	net      *internet
	browsers *browser.Browsers
	tool     agent.Tool
}

func config(dir string, n *internet) browser.Config {
	return browser.Config{Dir: dir, NoSandbox: os.Geteuid() == 0,
		Egress: egress.Config{Resolver: n, Dial: n.Dial}}
}

func newBench(t *testing.T, change func(*browser.Config)) *bench {
	t.Helper()
	b := &bench{T: t, net: newInternet(t)}
	cfg := config(t.TempDir(), b.net)
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.browsers, err = browser.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.browsers.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.tool = b.of("phone")
	return b
}

// with is the same for a part of the test.
func (b *bench) with(t *testing.T) *bench {
	return &bench{T: t, net: b.net, browsers: b.browsers, tool: b.tool}
}

// of returns the tool of a session.
func (b *bench) of(session string) agent.Tool {
	b.Helper()
	return b.ofUser(auth.Identity{Tenant: "default"}, session)
}

func (b *bench) ofUser(id auth.Identity, session string) agent.Tool {
	b.Helper()
	tools := b.browsers.Registration().Make(agent.SessionContext{
		Key: registry.Key{Tenant: id.Tenant, Session: session}, Caller: id,
	})
	if len(tools) != 1 {
		b.Fatalf("there are %d tools:", len(tools))
	}
	return tools[0]
}

// run calls the tool with arguments in JSON.
func (b *bench) run(format string, args ...any) registry.Result {
	b.Helper()
	return b.runAs(b.tool, format, args...)
}

func (b *bench) runAs(tool agent.Tool, format string, args ...any) registry.Result {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	res, err := tool.Execute(ctx, json.RawMessage(fmt.Sprintf(format, args...)))
	if err != nil {
		b.Fatalf(format+": %v", append(args, err)...)
	}
	return res
}

// until calls the tool with a context that ends when a function returns.
func (b *bench) until(args string, while func()) registry.Result {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); while(); cancel() }()
	res, err := b.tool.Execute(ctx, json.RawMessage(args))
	<-done
	if err != nil {
		b.Fatal(err)
	}
	return res
}

// do calls the tool, which must succeed.
func (b *bench) do(format string, args ...any) string {
	b.Helper()
	res := b.run(format, args...)
	if !res.Success {
		b.Fatalf("%s: %s", fmt.Sprintf(format, args...), res.Output)
	}
	return res.Output
}

// fails calls the tool, which must fail with words of that kind.
func (b *bench) fails(words, format string, args ...any) {
	b.Helper()
	if res := b.run(format, args...); res.Success || !strings.Contains(res.Output, words) || res.Error == "" {
		b.Errorf("%s: success %v, want %q in %s", fmt.Sprintf(format, args...), res.Success, words, res.Output)
	}
}

// refIn finds the ref of the line that begins with a text.
func (b *bench) refIn(snapshot, line string) string {
	b.Helper()
	found := regexp.MustCompile(`(?m)^\s*- ` + regexp.QuoteMeta(line) + `.*?\[(e\d+)\]`).FindStringSubmatch(snapshot)
	if found == nil {
		b.Fatalf("no %q in\n%s", line, snapshot)
	}
	return found[1]
}

// ref takes a snapshot and finds the ref of the line that begins with a text.
func (b *bench) ref(line string) string {
	b.Helper()
	return b.refIn(b.do(`{"action":"snapshot"}`), line)
}

func (b *bench) contains(text string, parts ...string) {
	b.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			b.Errorf("no %q in\n%s", part, text)
		}
	}
}

// comes asks for the status until that, or what was said before, has all parts: a page goes on after the call that
// showed it.
func (b *bench) comes(said string, parts ...string) {
	b.Helper()
	end, tick := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	lacks := func(part string) bool { return !strings.Contains(said, part) }
	for slices.ContainsFunc(parts, lacks) {
		select {
		case <-tick.C:
			said += "\n" + b.do(`{"action":"status"}`)
		case <-end:
			b.contains(said, parts...)
			return
		}
	}
}
