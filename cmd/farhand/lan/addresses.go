// Package lan makes this machine's gateway reachable for other devices of its network: it finds the addresses that they
// can use, and makes a certificate for them.
package lan

import (
	"cmp"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Reach is how other devices can name this machine.
type Reach struct {
	Private []netip.Addr // of its own networks, the one that leads elsewhere first
	Public  []netip.Addr // other IPv4 addresses, which the internet may reach
	Names   []string     // its host name, if that is one for DNS, and the same below .local (mDNS)
}

// All returns the private IPv4 addresses, the public ones, and then those of IPv6, which fewer devices can use.
func (r Reach) All() []netip.Addr {
	six := slices.IndexFunc(append(slices.Clone(r.Private), netip.IPv6Unspecified()), netip.Addr.Is6)
	return slices.Concat(r.Private[:six], r.Public, r.Private[six:])
}

// Find returns how other devices can name this machine now.
func Find() (Reach, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return Reach{}, err
	}
	var all []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 || inside.MatchString(i.Name) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return Reach{}, err
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, prefix.Addr().Unmap())
			}
		}
	}
	host, _ := os.Hostname() // without one, devices use an address
	return reach(all, outward(), host), nil
}

// inside matches the interfaces of containers and virtual machines on this machine. No other device is there, and they
// come and go.
var inside = regexp.MustCompile(`^(docker|br-|veth|virbr|vnet|cni|flannel|cali|podman|lxc|lxd|vmnet|bridge1\d\d)`)

// shared are the addresses of carriers and of overlay networks (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

func reach(all []netip.Addr, first netip.Addr, host string) (r Reach) {
	for _, a := range all {
		switch {
		case a.IsPrivate() || shared.Contains(a):
			r.Private = append(r.Private, a)
		case a.Is4() && a.IsGlobalUnicast():
			r.Public = append(r.Public, a)
		}
	}
	slices.SortStableFunc(r.Private, func(a, b netip.Addr) int {
		return cmp.Or(order(a, first)-order(b, first), a.Compare(b))
	})
	r.Private = slices.Compact(r.Private)
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if label, _, _ := strings.Cut(host, "."); dnsName.MatchString(host) && label != "localhost" {
		r.Names = slices.Compact([]string{host, label + ".local"})
	}
	return r
}

// order puts IPv4 addresses, which people can type, before others, and the address of the default route before all.
func order(a, first netip.Addr) int {
	switch {
	case a.Is6():
		return 2
	case a != first:
		return 1
	default:
		return 0
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// outward returns the address from which this machine reaches others. It sends nothing: the address is one for
// documentation (RFC 5737), and a UDP socket only looks up its route.
func outward() netip.Addr {
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
