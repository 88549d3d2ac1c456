package publicnet

import (
	"net/netip"
	"slices"
)

// Kind says whose an address is.
type Kind int

// The kinds. The zero value is the strictest.
const (
	Never   Kind = iota // nobody's, several machines', or a cloud provider's own: no request has business there
	Private             // this machine, or one of the networks around it
	Public              // a machine of the Internet
)

// metadata are the addresses where cloud providers hand out credentials to whoever asks from within. Those that are
// link-local are not among them: no link-local address is allowed.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// private are the networks of kind Private.
var private = prefixes(
	"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
	"100.64.0.0/10", // shared by the customers of a provider; overlay networks use it, too
	"::1/128", "fc00::/7",
)

// special are the networks that are neither private nor of the Internet, in the registries of IANA for addresses of
// special purpose. Of IPv6 there is more: see KindOf.
var special = prefixes(
	"0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23",     // Teredo, which has an IPv4 address in it, and other protocols
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4, which has an IPv4 address in it
	"3fff::/20",     // documentation
)

// unicast are the addresses of IPv6 that may be of the Internet. NAT64 (64:ff9b::/96) is not among them: it has an IPv4
// address in it, which a translator that nobody here knows would connect to.
var unicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// KindOf returns the kind of an address. An IPv4 address that is written as one of IPv6 is what it is as IPv4.
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

// in reports whether an address is in one of the networks.
func in(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}
