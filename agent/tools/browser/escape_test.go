//go:build linux

package browser_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/tools/browser"
)

// hosts are ways to write this machine, its networks, and the places where cloud providers hand out credentials.
var hosts = []string{
	"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0x7F.0.0.0x1", "0177.0.0.1", "017700000001",
	"0177.1", "127.0.0.1.", "127.255.255.254", "0", "0.0.0.0", "0x0", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]",
	"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "localhost", "localhost.", "LOCALHOST", "lo%63alhost",
	"a.localhost", "a.b.localhost.", "127。0。0。1", "127.0.0.1", "①②⑦.⓪.⓪.①", "%31%32%37.0.0.1",
	"user:pass@127.0.0.1", "pages.test@127.0.0.1", "10.0.0.1", "10.1", "172.16.0.1", "192.168.1.1", "3232235777",
	"100.64.0.1",
	"169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518", "0251.0376.0251.0376", "[::ffff:169.254.169.254]",
	"[::ffff:a9fe:a9fe]", "metadata.google.internal", "metadata.google.internal.", "100.100.100.200", "168.63.129.16",
	"192.0.0.192", "[fd00:ec2::254]", "[fd20:ce::254]", "[fe80::1]", "[fc00::1]", "[64:ff9b::7f00:1]",
	"[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
	"224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "private.test", "loopback.test", "metadata.test",
	"mapped.test", "nat64.test",
}

// canary is a server of this machine that nobody may reach, by TCP or UDP.
type canary struct {
	port   int
	caught atomic.Int32
}

func newCanary(t *testing.T) *canary {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{port: listener.Addr().(*net.TCPAddr).Port}
	packets, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.port})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			c.caught.Add(1)
		}
	}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the canary") })}
	done := make(chan struct{}, 2)
	go func() { server.Serve(listener); done <- struct{}{} }()
	go func() {
		for buf := make([]byte, 1500); ; {
			if _, _, err := packets.ReadFrom(buf); err != nil {
				done <- struct{}{}
				return
			}
			c.caught.Add(1)
		}
	}()
	t.Cleanup(func() { server.Close(); packets.Close(); <-done; <-done })
	return c
}

func newCaged(t *testing.T, c *canary, change func(*browser.Config)) *bench {
	b := newBench(t, func(cfg *browser.Config) {
		cfg.Egress.Ports = []int{c.port} // so that the port is not why nothing gets there
		if change != nil {
			change(cfg)
		}
	})
	for name, addr := range map[string]string{"private.test": "10.0.0.5", "loopback.test": "127.0.0.1",
		"metadata.test": "169.254.169.254", "metadata.google.internal": "169.254.169.254",
		"mapped.test": "::ffff:127.0.0.1", "nat64.test": "64:ff9b::7f00:1"} {
		b.net.names[name] = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr(addr)} }
	}
	return b
}

// intact checks that nothing but the sites of the test was dialled, and that the canary is alive.
func (b *bench) intact(c *canary) {
	b.Helper()
	if other := b.net.elsewhere(); len(other) > 0 {
		b.Errorf("dialled: %v", other)
	}
	if n := c.caught.Load(); n > 0 {
		b.Errorf("the canary was reached %d times", n)
	}
}

// Nothing gets out of a browser but through the proxy, and the proxy leads nowhere it must not.
func TestEscapes(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	b := newCaged(t, c, nil)
	for _, tt := range []struct {
		name string
		test func(*bench, *canary)
	}{{"schemes", testSchemes}, {"hosts", testHosts}, {"ways out", testWaysOut}, {"rebinding", testRebinding}} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(b.with(t), c)
			b.with(t).intact(c)
		})
	}
}

// However a host is written, neither the tool nor a page gets there.
func testHosts(b *bench, c *canary) {
	var urls []string
	for _, host := range hosts {
		address := fmt.Sprintf("http://%s:%d/x", host, c.port)
		urls = append(urls, address, fmt.Sprintf("https://%s:%d/x", host, c.port))
		res := b.run(`{"action":"navigate","url":%q}`, address)
		named := strings.HasSuffix(host, ".test") // only the proxy learns where it leads
		if res.Success || !named && !strings.HasPrefix(res.Output, "The URL cannot be opened: ") ||
			named && !strings.Contains(res.Output, ": refused: ") {
			b.Errorf("%s: %+v", address, res)
		}
	}
	list, err := json.Marshal(urls)
	if err != nil {
		b.Fatal(err)
	}
	tried := make(chan struct{})
	b.net.mux.HandleFunc("/tried", func(http.ResponseWriter, *http.Request) { close(tried) })
	b.net.page("/hosts", `<title>trying</title><button id=go>Go</button><script>go.onclick=async()=>{
await Promise.allSettled(`+string(list)+`.map(u=>fetch(u,{mode:'no-cors'})));fetch('/tried',{method:'POST'})}</script>`)
	b.navigate("/hosts")
	b.act("click", b.ref(`button "Go"`))
	select {
	case <-tried:
	case <-time.After(patience):
		b.Error("the page has not tried them all")
	}
	if len(hosts) < 40 {
		b.Errorf("%d spellings", len(hosts))
	}
}

// With private networks allowed, this machine can be reached, and metadata still cannot.
func TestAllowPrivate(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	b := newCaged(t, c, func(cfg *browser.Config) { cfg.Egress.AllowPrivate = true })
	b.do(`{"action":"open","url":"http://127.0.0.1:%d/"}`, c.port)
	b.contains(b.do(`{"action":"snapshot"}`), "the canary")
	if c.caught.Load() == 0 {
		b.Error("the canary was not reached: no test here can fail")
	}
	for _, host := range []string{"169.254.169.254", "metadata.test", "[fd00:ec2::254]", "nat64.test", "0.0.0.0"} {
		why := "The URL cannot be opened"
		if strings.HasSuffix(host, ".test") {
			why = ": refused: "
		}
		b.fails(why, `{"action":"navigate","url":"http://%s:%d/"}`, host, c.port)
	}
}

// ways are what a page may do to reach a URL that it names U. Those that begin with a star are seen by the proxy in no
// case, or not in every: Chromium lets them go nowhere by itself.
var ways = []string{
	`location=U`, `location.replace(U)`, `fetch(U,{mode:'no-cors'})`, `new Image().src=U`, `new WebSocket(W)`,
	`new EventSource(U)`, `navigator.sendBeacon(U,'x')`, `add('<iframe src="'+U+'">')`, `*open(U)`,
	`new Worker(URL.createObjectURL(new Blob(['fetch("'+U+'",{mode:"no-cors"})'])))`,
	`add('<link rel=stylesheet href="'+U+'">')`, `add('<video src="'+U+'">')`, `add('<object data="'+U+'">')`,
	`add('<meta http-equiv=refresh content="0;url='+U+'">')`, `add('<link rel=prefetch href="'+U+'">')`,
	`add('<form method=post action="'+U+'">');document.forms[0].submit()`, `*add('<link rel=preconnect href="'+U+'">')`,
	`*add('<link rel=dns-prefetch href="'+U+'">')`, `*new WebTransport(T)`,
	`*const p=new RTCPeerConnection({iceServers:[{urls:['stun:'+H,'turn:'+H+'?transport=tcp',
'turn:'+H+'?transport=udp'],username:'u',credential:'c'}]});p.createDataChannel('x');
p.createOffer().then(o=>p.setLocalDescription(o))`,
}

// Whatever a page does to get somewhere, it gets there through the proxy, or not at all.
func testWaysOut(b *bench, c *canary) {
	b.net.mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	b.net.mux.HandleFunc("/way", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		i, host := atoi(r.URL.Query().Get("i")), r.URL.Query().Get("host")
		fmt.Fprintf(w, `<!doctype html><body><script>const H='%s',U='http://'+H+'/',W='ws://'+H+'/',T='https://'+H+'/';
const add=h=>document.body.insertAdjacentHTML('beforeend',h);%s</script>`, host, strings.TrimPrefix(ways[i], "*"))
	})
	hosts := []string{"way%d.loop.test:" + fmt.Sprint(c.port), "127.0.0.1:" + fmt.Sprint(c.port) + "#%d",
		"169.254.169.254#%d"}
	var frames strings.Builder
	for i := range ways {
		for _, host := range hosts {
			host, _, _ = strings.Cut(fmt.Sprintf(host, i), "#")
			fmt.Fprintf(&frames, `<iframe src="/way?i=%d&host=%s"></iframe>`, i, host)
		}
	}
	b.net.page("/ways", frames.String())
	b.navigate("/ways")
	for i, way := range ways {
		if !strings.HasPrefix(way, "*") && !b.net.isAsked(fmt.Sprintf("way%d.loop.test", i)) {
			b.Errorf("not tried: %s", way)
		}
	}
	// The page itself goes there.
	for _, i := range []int{0, 13, 15} {
		res := b.run(`{"action":"navigate","url":"http://pages.test/way?i=%d&host=127.0.0.1:%d"}`, i, c.port)
		b.comes(res.Output, "127.0.0.1 is an address of this machine")
	}
	for _, to := range []string{fmt.Sprintf("http://127.0.0.1:%d/", c.port), "http://169.254.169.254/latest/meta-data/",
		"http://loopback.test/", "https://loopback.test/", "http://pages.test/redirect?to=http://10.0.0.1/"} {
		b.fails("refused: ", `{"action":"navigate","url":"http://pages.test/redirect?to=%s"}`, to)
	}
}

func atoi(text string) (n int) {
	fmt.Sscan(text, &n)
	return n
}

// A name that is public when it is looked at, and loopback when it is used, leads nowhere the second time.
func testRebinding(b *bench, c *canary) {
	var asked atomic.Int32
	b.net.names["rebind.test"] = func() []netip.Addr {
		if asked.Add(1) == 1 {
			return []netip.Addr{public}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	}
	b.net.names["both.test"] = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1"), public} }
	b.net.mux.HandleFunc("/rebind", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<link rel=icon href="data:,"><script>
fetch('http://rebind.test:%d/x').then(r=>r.text()).then(x=>{document.title=x})</script><p>first`, c.port)
	})
	b.comes(b.do(`{"action":"navigate","url":"http://rebind.test/rebind"}`), "rebind.test resolves to a private")
	if asked.Load() < 2 {
		b.Error("the name was not looked up again")
	}
	b.do(`{"action":"navigate","url":"http://both.test/rebind"}`)
}

// What is no page of the Web is not shown, whoever asks for it.
func testSchemes(b *bench, _ *canary) {
	b.net.page("/schemes", `<title>Here</title><a id=v href="view-source:http://pages.test/">View</a>
<button id=b>Blob</button><button id=d>Data</button><button id=f>File</button><button id=c>Chrome</button>
<button id=w>Window</button><script>
b.onclick=()=>{location=URL.createObjectURL(new Blob(['<p>in a blob'],{type:'text/html'}))};
d.onclick=()=>{location='data:text/html,x'};f.onclick=()=>{location='file:///etc/passwd'};
c.onclick=()=>{location='chrome://version'};w.onclick=()=>{open('file:///etc/passwd')}</script>`)
	for _, address := range []string{"data:text/html,x", "blob:http://pages.test/1", "view-source:http://pages.test/",
		"file:///etc/passwd", "chrome://version", "javascript:alert(1)", "about:blank", "about:version",
		"filesystem:http://x/", "devtools://devtools/", "ftp://pages.test/", "FILE:///etc/passwd",
		" file:///etc/passwd", "//pages.test/", "pages.test", "chrome-extension://x/", "http:///etc", "http://",
		"ws://pages.test/", "http://pages.test:22/", "https://pages.test:6379/"} {
		if res := b.run(`{"action":"open","url":%q}`, address); res.Success {
			b.Errorf("%s: %s", address, res.Output)
		}
	}
	b.contains(b.do(`{"action":"status"}`), "No browser is running")
	b.do(`{"action":"open","url":"http://pages.test/schemes"}`)
	for _, line := range []string{`button "Blob"`, `button "Data"`, `button "File"`, `button "Chrome"`,
		`button "Window"`, `link "View"`} {
		b.navigate("/schemes")
		said := b.act("click", b.ref(line))
		status := b.do(`{"action":"status"}`)
		for line := range strings.Lines(status) {
			if strings.HasPrefix(line, "Tab ") && !strings.Contains(line, ` http://pages.test/schemes`) &&
				!strings.Contains(line, " about:blank") {
				b.Errorf("%s: %s, %s", line, said, line)
			}
		}
		if strings.Contains(line, "Blob") {
			b.comes(said+"\n"+status, "opened a blob: page", "about:blank")
		}
	}
}
