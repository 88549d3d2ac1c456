package main

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rsc.io/qr"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/cmd/farhand/lan"
	"github.com/farhand/farhand/internal/testkit"
)

var (
	exportLine  = regexp.MustCompile(`(?m)^  (export FARHAND_URL=\S+ FARHAND_CA=.*)$`)
	reachLine   = regexp.MustCompile(`(?m)^  (https://\S+)$`)
	fingerprint = regexp.MustCompile(`(?m)^  ((?:[0-9A-F]{2}:){16})\n  ((?:[0-9A-F]{2}:){15}[0-9A-F]{2})$`)
)

// startLAN starts `farhand demo --lan` as a process, and returns it once it has printed how to reach it.
func startLAN(t *testing.T, home string, args ...string) (p *process, export string, urls []string, print string) {
	t.Helper()
	_, port, _ := strings.Cut(testkit.FreeAddr(t), ":")
	p = start(t, []string{"XDG_STATE_HOME=" + home}, farhandBinary,
		append([]string{"demo", "--lan", "--addr", ":" + port}, args...)...)
	eventually(t, waitLimit, "the demo says how to reach it", func() bool {
		return strings.Contains(p.out.String(), "The console: ")
	})
	out := p.out.String()
	line, marks := exportLine.FindStringSubmatch(out), fingerprint.FindStringSubmatch(out)
	for _, url := range reachLine.FindAllStringSubmatch(out, -1) {
		urls = append(urls, url[1])
	}
	if line == nil || marks == nil || len(urls) == 0 {
		t.Fatalf("the demo prints\n%s", out)
	}
	return p, line[1], urls, marks[1] + marks[2]
}

// TestDemoForTheNetwork: what the demo prints works as it is, from another address of this machine: the commands with
// the token, a second device that pairs, and HTTP on the same port. The certificate is the same after a restart.
func TestDemoForTheNetwork(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "it's a home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	p, export, urls, print := startLAN(t, home)
	shell := func(command string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", export+"\nexport FARHAND_URL="+urls[0]+"\n"+command)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	if out := shell(farhandBinary + ` call echo '{"text":"hello"}'`); !strings.Contains(out, "hello") {
		t.Errorf("call: %s", out)
	}
	const curl = `curl -sS --cacert "$FARHAND_CA" "$FARHAND_URL/api/sessions" `
	if out := shell(curl + `-H "Authorization: Bearer $FARHAND_TOKEN"`); !strings.Contains(out, `"session_id":"demo"`) {
		t.Errorf("curl: %s", out)
	}
	if out := shell(`openssl x509 -in "$FARHAND_CA" -noout -fingerprint -sha256`); !strings.Contains(out, print) {
		t.Errorf("the fingerprint is not %s: %s", print, out)
	}
	if out := shell(curl + `-o /dev/null -w '%{response_code}'`); out != "401" {
		t.Errorf("without the token: %s", out)
	}
	phone := start(t, nil, "sh", "-c", export+"\nunset FARHAND_TOKEN\nexec "+farhandBinary+
		" device --pair --credential '"+
		filepath.Join(t.TempDir(), "phone")+"' --device phone --session phone --server "+urls[0])
	eventually(t, waitLimit, "the phone shows a code", func() bool {
		return strings.Contains(phone.out.String(), "farhand pair approve ")
	})
	_, code, _ := strings.Cut(phone.out.String(), "farhand pair approve ")
	code, _, _ = strings.Cut(code, "\n")
	shell(farhandBinary + " pair approve " + code)
	eventually(t, waitLimit, "the phone is connected", func() bool {
		return strings.Contains(phone.out.String(), "session phone offers")
	})
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer plain.CloseIdleConnections()
	resp, err := plain.Get("http" + strings.TrimPrefix(urls[0], "https") + "/console/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 308 || resp.Header.Get("Location") != urls[0]+"/console/" {
		t.Errorf("plain HTTP: %d, %v", resp.StatusCode, resp.Header)
	}
	if out := p.out.String(); strings.Contains(out, "?") && strings.Contains(out, "token=") {
		t.Errorf("a link has a token:\n%s", out)
	}
	phone.signal(syscall.SIGTERM)
	p.signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d\n%s", code, p.out)
	}
	if again, _, _, other := startLAN(t, home); other != print {
		t.Errorf("another certificate after a restart:\n%s", again.out)
	}
}

// TestDemoChat: people can talk to the demo without a model. The answers say that they are scripted.
func TestDemoChat(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var out, errOut lockedBuffer
	app := application{in: strings.NewReader("what is this machine called?\nhello\n"), out: &out, err: &errOut,
		args: []string{"demo", "--chat", "--addr", testkit.FreeAddr(t)}}
	code := app.run(ctx)
	host, _ := os.Hostname()
	for _, want := range []string{"→ device_info {}", "(Scripted answer.) This machine is called " + host,
		"I am a script, not a language model"} {
		if text := out.String() + errOut.String(); code != 0 || !strings.Contains(text, want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, text)
		}
	}
}

// TestDemoForTheNetworkRefuses: --lan on loopback, with a weak token or without a place for the certificate.
func TestDemoForTheNetworkRefuses(t *testing.T) {
	t.Parallel()
	home := "XDG_STATE_HOME=" + t.TempDir()
	for _, tt := range []struct {
		environ []string
		args    []string
		says    string
	}{
		{[]string{home}, []string{"--addr", "127.0.0.1:0"}, "give a port only"},
		{[]string{home, "FARHAND_TOKEN=short"}, []string{"--addr", ":0"}, "FARHAND_TOKEN is short"},
		{[]string{"XDG_STATE_HOME=/dev/null"}, []string{"--addr", ":0"}, "keep the certificate"},
		{[]string{home}, []string{"--chat"}, "once chat"},
	} {
		code, out, errOut := command(t, tt.environ, append([]string{"demo", "--lan", "--once"}, tt.args...)...)
		if code != exitError || !strings.Contains(errOut, tt.says) {
			t.Errorf("%q: exit %d\n%s%s", tt.args, code, out, errOut)
		}
	}
}

// A token of the user's own is used, and not printed.
func TestDemoForTheNetworkWithAToken(t *testing.T) {
	t.Parallel()
	const own = "a-token-of-the-users-own-0123456789"
	environ := []string{"XDG_STATE_HOME=" + t.TempDir(), "FARHAND_TOKEN=" + own, "FARHAND_TLS_CERT=x"}
	code, out, errOut := command(t, environ, "demo", "--lan", "--once", "--addr", ":0")
	if code != 0 || strings.Contains(out+errOut, own) ||
		!strings.Contains(out, "Ignored by the demo: FARHAND_TLS_CERT") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}

// The addresses that other devices can use, by what the gateway listens on.
func TestReachableURLs(t *testing.T) {
	t.Parallel()
	n := &demoNetwork{reach: lan.Reach{
		Private: []netip.Addr{netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("fd00::2")},
		Names:   []string{"ada.home", "ada.local"},
	}}
	var err error
	if n.cert, err = lan.Keep(t.TempDir(), n.reach, time.Now()); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string][]string{
		":80":            {"https://192.168.1.5:80", "https://[fd00::2]:80", "https://ada.local:80"},
		"[::]:80":        {"https://192.168.1.5:80", "https://[fd00::2]:80", "https://ada.local:80"},
		"0.0.0.0:80":     {"https://192.168.1.5:80", "https://ada.local:80"},
		"192.168.1.5:80": {"https://192.168.1.5:80"},
	} {
		if got := n.urls(addr, "192.168.1.5", "80"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	n.reach = lan.Reach{Names: []string{"ada.local"}}
	if got := n.urls(":80", "127.0.0.1", "80"); got != nil {
		t.Errorf("without a network: %q", got)
	}
}

// The links are those of the pages that are served. No terminal, no code.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  farhand.Config
		want []string
	}{
		{farhand.Config{Console: "off"}, nil},
		{farhand.Config{}, []string{"https://x/console/", "https://x/device"}},
	} {
		var out lockedBuffer
		(&application{out: &out}).showPages(tt.cfg, "https://x", true)
		got := regexp.MustCompile(`https://\S+`).FindAllString(out.String(), -1)
		if !slices.Equal(got, tt.want) || strings.Contains(out.String(), "▀") {
			t.Errorf("console %q: %s", tt.cfg.Console, &out)
		}
	}
}

// TestQRCode reads the modules from the colours of the terminal's cells, as a camera does, with their light border.
func TestQRCode(t *testing.T) {
	t.Parallel()
	const link = "https://[fd00::1234:5678:9abc:def0]:8080/device"
	text, err := qrCode(link)
	if err != nil {
		t.Fatal(err)
	}
	want, err := qr.Encode(link, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]bool
	for line := range strings.Lines(text) {
		cells, begun := strings.CutPrefix(line, "\x1b[38;5;16;48;5;231m") // black on white, whatever the terminal's own
		cells, ended := strings.CutSuffix(cells, "\x1b[0m\n")
		if !begun || !ended || strings.Contains(cells, "\x1b") {
			t.Fatalf("a line without its colours: %q", line)
		}
		var upper, lower []bool
		for _, cell := range cells {
			upper, lower = append(upper, cell == '▀' || cell == '█'), append(lower, cell == '▄' || cell == '█')
		}
		rows = append(rows, upper, lower)
	}
	size := want.Size + 2*quiet
	if len(rows) < size || len(rows) > size+1 {
		t.Fatalf("%d rows, not %d", len(rows), size)
	}
	for y, row := range rows {
		for x, dark := range row {
			if dark != want.Black(x-quiet, y-quiet) || len(row) != size {
				t.Fatalf("row %d of %d modules, column %d: dark is %t", y, len(row), x, dark)
			}
		}
	}
	if _, err := qrCode(strings.Repeat("x", 10_000)); err == nil {
		t.Error("a code for a text that is too long")
	}
}

// TestCommandsOverHTTPS: all ways in which commands speak to a gateway with a certificate of its own.
func TestCommandsOverHTTPS(t *testing.T) {
	t.Parallel()
	cert, key := testkit.Certificate(t, t.TempDir(), time.Now().AddDate(1, 0, 0))
	p := startPod(t, "FARHAND_TLS_CERT="+cert, "FARHAND_TLS_KEY="+key)
	addr := strings.TrimPrefix(p.url, "http://")
	environ := []string{"FARHAND_URL=https://" + addr, "FARHAND_TOKEN=" + fleetToken, "FARHAND_CA=" + cert}
	device := start(t, environ, farhandBinary, "device", "--session", "d")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	start(t, []string{"NODE_EXTRA_CA_CERTS=" + cert, "FARHAND_TOKEN=" + fleetToken}, node,
		"../../examples/device/node.js", "https://"+addr, "node")
	eventually(t, waitLimit, "the devices are connected", func() bool {
		_, tools, _ := command(t, environ, "tools")
		return strings.Contains(device.out.String(), "session d offers") && strings.Contains(tools, "count")
	})
	for _, tt := range []struct {
		environ []string
		args    []string
		code    int
		says    string
	}{
		{environ, []string{"call", "echo", `{"text":"hello"}`}, 0, "hello"},
		{environ, []string{"call", "count", `{"to":2,"step_ms":1}`}, 0, "session node"},
		{environ[:2], []string{"tools", "--ca", cert}, 0, "echo"},
		{environ[:2], []string{"tools"}, exitError, "--ca (FARHAND_CA)"},
		{environ[:2], []string{"tools", "--ca", key}, exitError, "no PEM certificate"},
		{environ[:2], []string{"device", "--ca", "/nonexistent"}, exitError, "--ca (FARHAND_CA)"},
		{environ[:2], []string{"mcp", "--ca", "/nonexistent"}, exitError, "--ca (FARHAND_CA)"},
		{[]string{"FARHAND_ADDR=" + addr, "FARHAND_TLS_CERT=x"}, []string{"health"}, 0, ""},
		{[]string{"FARHAND_URL=http://" + addr, "FARHAND_TOKEN=x"}, []string{"tools"}, exitError, "HTTPS only"},
		{append(environ, "FARHAND_CA=/nonexistent"), []string{"tools"}, exitError, "--ca (FARHAND_CA)"},
	} {
		code, out, errOut := command(t, tt.environ, tt.args...)
		if code != tt.code || !strings.Contains(out+errOut, tt.says) {
			t.Errorf("%q: exit %d\n%s%s", tt.args, code, out, errOut)
		}
	}
	mcp := exec.Command(farhandBinary, "mcp")
	mcp.Env = environ
	mcp.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call",` +
		`"params":{"name":"echo","arguments":{"text":"over MCP"}}}` + "\n")
	out, err := mcp.Output()
	if err != nil || !strings.Contains(string(out), "over MCP") {
		t.Errorf("mcp: %s, %v", out, err)
	}
	device.signal(syscall.SIGTERM)
}
