package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"rsc.io/qr"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/cmd/farhand/lan"
	"github.com/farhand/farhand/internal/certificate"
)

// demoNetwork is how other devices reach the demo.
type demoNetwork struct {
	reach lan.Reach
	cert  lan.Certificate
}

// openNetwork prepares what --lan needs. Without it, it returns nil.
func (a *application) openNetwork(o demoOptions) (*demoNetwork, error) {
	if !o.lan {
		return nil, nil
	}
	if auth.IsLoopbackHost(o.addr) {
		return nil, fmt.Errorf("--addr %s: other devices cannot reach this address; with --lan, give a port only, "+
			"such as %s", o.addr, demoAddrLAN)
	}
	reach, err := lan.Find()
	if err != nil {
		return nil, fmt.Errorf("find this machine's addresses: %w", err)
	}
	dir, err := demoDir(a.environ)
	if err != nil {
		return nil, err
	}
	n := &demoNetwork{reach: reach}
	n.cert, err = lan.Keep(filepath.Join(dir, "tls"), reach, time.Now())
	return n, err
}

// settings returns the variables that make the gateway reachable: its certificate, and a token unless there is one.
func (n *demoNetwork) settings(vars map[string]string) []string {
	set := []string{envPrefix + "TLS_CERT=" + n.cert.Pair, envPrefix + "TLS_KEY=" + n.cert.Pair}
	if !hasToken(vars) {
		set = append(set, envPrefix+"TOKEN="+rand.Text())
	}
	return set
}

// showReach prints how people reach the gateway from this machine and, with --lan, from others.
func (a *application) showReach(n *demoNetwork, r remote, cfg farhand.Config) {
	if n == nil {
		a.showPages(cfg, r.server, false)
		return
	}
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(r.server, "https://"))
	urls := n.urls(cfg.Addr, host, port)
	if len(urls) == 0 {
		fmt.Fprint(a.out, "This machine is in no network now. Connect it, and restart the demo.\n\n")
		a.showPages(cfg, r.server, false)
		return
	}
	fmt.Fprintf(a.out, "Other devices of this network reach it at\n\n")
	for _, url := range urls {
		fmt.Fprintf(a.out, "  %s\n", url)
	}
	again := ""
	if n.cert.Made {
		again = " The certificate is new: devices that accepted an earlier one ask again."
	}
	fingerprint, half := certificate.Fingerprint(n.cert.Leaf), 16*len("00:")
	asks := "This machine made the certificate itself, so a browser there warns once that the connection is not " +
		"private. Open the certificate in that warning, and continue only if its SHA-256 fingerprint is the one " +
		"below. It stays the same until " + n.cert.Until().Format(time.DateOnly) + ", or until this machine's " +
		"addresses change." + again
	fmt.Fprintf(a.out, "\n%s\n\n  %s\n  %s\n\n", wrap(asks, 96, ""), fingerprint[:half], fingerprint[half:])
	fmt.Fprintf(a.out, "%s\n\n", wrap("People and programs there need the token, whose holder may do everything. A "+
		"phone becomes a device without it: it shows a code, which you enter in the console under Access, or approve "+
		"with `"+cmp.Or(a.program, "farhand")+" pair approve CODE`.", 96, ""))
	if len(n.reach.Public) > 0 {
		fmt.Fprintf(a.out, "Note: this machine also has the public address %s. Unless a firewall stops it, the "+
			"internet reaches\nthe gateway there, and only the token protects it.\n\n", n.reach.Public[0])
	}
	a.showPages(cfg, urls[0], true)
}

// local returns the URL of a listener on this machine.
func (n *demoNetwork) local(at string) string {
	host, port, _ := net.SplitHostPort(at)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port)
}

// urls returns the addresses of the gateway for other devices, the best first. It listens on addr, and this machine
// reaches it at host and port.
func (n *demoNetwork) urls(addr, host, port string) (urls []string) {
	add := func(host string) { urls = append(urls, "https://"+net.JoinHostPort(host, port)) }
	listens, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(listens); listens != "" && (err != nil || !ip.IsUnspecified()) {
		add(host) // one address only
		return urls
	}
	for _, a := range n.cert.Covered(n.reach) {
		if ip, err := netip.ParseAddr(listens); err != nil || ip.Is6() || a.Is4() {
			add(a.String())
		}
	}
	for _, name := range n.reach.Names {
		if len(urls) > 0 && strings.HasSuffix(name, ".local") {
			add(name)
		}
	}
	return urls
}

// showPages prints the links to the gateway's pages at a base URL, and what to sign in with. If other devices can reach
// it, a terminal also shows the link for a phone as a QR code. A link has no secret: a phone gets its credential by
// pairing.
func (a *application) showPages(cfg farhand.Config, base string, reachable bool) {
	pages := cfg.Pages()
	if pages.Console != "" {
		fmt.Fprintf(a.out, "The console: %s%s\n", base, pages.Console)
		if cfg.Token != "" {
			fmt.Fprintf(a.out, "  Sign in with the token %s\n", a.shownToken(cfg))
		}
		fmt.Fprintln(a.out)
	}
	if pages.Device != "" {
		fmt.Fprintf(a.out, "To make a phone or another browser a device, open: %s%s\n\n", base, pages.Device)
	}
	if pages.Device == "" || !reachable || !isTerminal(a.out) {
		return
	}
	if code, err := qrCode(base + pages.Device); err == nil { // else the link must be typed
		fmt.Fprintf(a.out, "%s\n", code)
	}
}

// shownToken returns the token if the demo made it up. The person's own is not printed.
func (a *application) shownToken(cfg farhand.Config) string {
	if hasToken(env.ToMap(a.environ)) {
		return "of " + envPrefix + "TOKEN"
	}
	return string(cfg.Token)
}

// quiet is the width of the light border that a QR code needs, in modules.
const quiet = 4

// qrCode returns a text as a QR code for a terminal. A character is two modules, one above the other. The colours are
// set, black on white, so that it looks the same on a dark and on a light terminal.
func qrCode(text string) (string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", err
	}
	dark := func(x, y int) bool { return code.Black(x-quiet, y-quiet) } // false outside
	size := code.Size + 2*quiet
	var b strings.Builder
	for y := 0; y < size; y += 2 {
		b.WriteString("\x1b[38;5;16;48;5;231m")
		for x := range size {
			switch upper, lower := dark(x, y), dark(x, y+1); {
			case upper && lower:
				b.WriteRune('█')
			case upper:
				b.WriteRune('▀')
			case lower:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteString("\x1b[0m\n")
	}
	return b.String(), nil
}
