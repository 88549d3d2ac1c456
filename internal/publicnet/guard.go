// Package publicnet keeps requests to caller-supplied URLs away from forbidden targets: the local machine, the networks
// around it, and the services of cloud providers that hand out credentials. The guard checks an address when the socket
// is about to connect to it (Guard.Control), so neither the spelling of a host nor a name whose address changes can
// bypass the check.
package publicnet

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/net/idna"
)

// ErrRefused is the cause of a Guard's errors, except when CheckURL rejects a URL that is malformed or too long.
var ErrRefused = errors.New("address refused")

// Guard decides which addresses may be connected to: public ones, and private ones if AllowPrivate is set. Addresses of
// kind Never are always rejected. Its methods are safe for concurrent use.
type Guard struct {
	AllowPrivate bool
}

// Check returns an error, with ErrRefused, if the address may not be connected to.
func (g Guard) Check(addr netip.Addr) error {
	switch KindOf(addr) {
	case Public:
		return nil
	case Private:
		if g.AllowPrivate {
			return nil
		}
		return fmt.Errorf("%w: %s is an address of this machine or of a private network", ErrRefused, addr)
	default:
		return fmt.Errorf("%w: %s is reserved, or an address where a cloud provider hands out credentials",
			ErrRefused, addr)
	}
}

// Control is for net.Dialer: it checks the address that a socket is about to connect to.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: %s is not TCP", ErrRefused, network)
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return g.Check(addr.Addr())
}

// Dialer returns a dialer that connects only where the guard allows it. timeout includes the resolution of the name.
func (g Guard) Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: g.Control}
}

// Transport returns a transport that connects only where the guard allows it. It uses no proxy, because a proxy would
// connect to any address. It speaks HTTP/1.1 only: over HTTP/2 a server has its client do work that no reader of an
// answer bounds, such as replies to pings. The caller bounds the number of connections, and closes the idle ones when
// it is done.
func (g Guard) Transport(timeout time.Duration) *http.Transport {
	only := new(http.Protocols)
	only.SetHTTP1(true)
	return &http.Transport{
		DialContext: g.Dialer(timeout).DialContext, TLSHandshakeTimeout: timeout, Protocols: only,
		MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: idleTimeout,
		DisableCompression: true, // a compressed response may expand to any size
	}
}

const (
	maxHeader   = 16 << 10
	idleTimeout = 30 * time.Second
)

// Kind classifies an address.
type Kind int

// The kinds. The zero value is the strictest.
const (
	Never   Kind = iota // unassigned, multicast, or a cloud provider's own: never a valid target
	Private             // this machine, or one of the networks around it
	Public              // a machine of the Internet
)

// metadata are the addresses where cloud providers hand out credentials to any process in their network. It omits
// link-local addresses, because all of those are rejected.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

var private = prefixes(
	"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
	"100.64.0.0/10", // shared by the customers of a provider; also used by overlay networks
	"::1/128", "fc00::/7",
)

// special are the networks in IANA's registries for special-purpose addresses that are neither private nor public.
// KindOf rejects further networks of IPv6.
var special = prefixes(
	"0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23",     // Teredo, which has an IPv4 address in it, and other protocols
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4, which has an IPv4 address in it
	"3fff::/20",     // documentation
)

// unicast are the addresses of IPv6 that may be public. NAT64 (64:ff9b::/96) is not among them: it embeds an IPv4
// address, to which an unknown translator would connect.
var unicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// KindOf returns the kind of an address. An IPv4-mapped IPv6 address has the kind of its IPv4 address.
func KindOf(addr netip.Addr) Kind {
	addr = addr.Unmap()
	switch {
	case !addr.IsValid() || addr.Zone() != "":
		return Never
	case slices.Contains(metadata, addr) || in(special, addr):
		return Never
	case in(private, addr):
		return Private
	case addr.Is4() || unicast.Contains(addr):
		return Public
	default:
		return Never
	}
}

func in(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

const maxURL = 8 << 10 // bytes

// CheckURL returns an error if the text of a URL shows that it is not allowed. It is for URLs that another program
// loads, in its own network. Only http and https are allowed. CheckURL does not resolve names, but it knows the names
// of the local machine and of the services that hand out credentials. An address must be written plainly: programs read
// 127.1, 0x7f000001 and 017700000001 in different ways. The errors do not repeat the URL, which may hold a secret.
func (g Guard) CheckURL(text string) error {
	if len(text) > maxURL {
		return fmt.Errorf("the URL is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, odd):
		return errors.New("the URL is malformed: write it as https://example.com/page")
	case u.Scheme != "http" && u.Scheme != "https":
		return refusedf("only http and https URLs are allowed, not %.20q", u.Scheme)
	case u.User != nil:
		return refusedf("leave the user name and the password out of the URL")
	case u.Hostname() == "":
		return errors.New("the URL has no host: write it as https://example.com/page")
	}
	return g.checkHost(u.Hostname())
}

// refused is an error with ErrRefused as its cause and a text for people.
type refused string

func (r refused) Error() string { return string(r) }

func (refused) Unwrap() error { return ErrRefused }

func refusedf(format string, args ...any) error { return refused(fmt.Sprintf(format, args...)) }

// checkAddr is Check with an error text for people.
func (g Guard) checkAddr(addr netip.Addr) error {
	if err := g.Check(addr); err != nil {
		return refused(strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "))
	}
	return nil
}

// odd reports whether a character is invisible, or read in different ways by different programs.
func odd(r rune) bool { return r == '\\' || r == ' ' || !unicode.IsPrint(r) }

// checkHost returns an error if the text of a host shows that it is not allowed.
func (g Guard) checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkAddr(addr)
	}
	if plain, err := url.PathUnescape(host); err == nil {
		host = plain
	}
	plain, err := idna.Lookup.ToASCII(host) // as browsers read it: look-alike letters and dots become plain
	switch {
	case err == nil:
		host = plain
	case strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }):
		return refusedf("the host is not a name that a browser accepts")
	}
	host = strings.TrimRight(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkAddr(addr)
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; last == "" || isNumber(last) {
		return refusedf("write an address as four decimal numbers, or as IPv6 in brackets")
	}
	return g.checkName(host)
}

// checkName checks a name in lower case without a dot at its end.
func (g Guard) checkName(host string) error {
	switch host {
	case "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal":
		return refusedf("%s is where a cloud provider hands out credentials", host)
	}
	local := host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain" ||
		host == "ip6-localhost" || host == "ip6-loopback"
	if local && !g.AllowPrivate {
		return refusedf("%s is a name for this machine", host)
	}
	return nil
}

// isNumber reports whether programs may read a label as a number: decimal, octal, or hexadecimal with 0x.
func isNumber(label string) bool {
	if strings.HasPrefix(label, "0x") {
		return strings.Trim(label[2:], "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
