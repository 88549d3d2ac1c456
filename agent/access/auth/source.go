package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Sources tells where requests come from. A client writes into X-Forwarded-For what it likes, so only what a trusted
// proxy has added to it counts. The zero value trusts none.
type Sources struct{ trusted []netip.Prefix }

// NewSources takes the addresses or networks of the proxies in front of the gateway.
func NewSources(proxies []string) (Sources, error) {
	var s Sources
	for _, p := range proxies {
		network, err := netip.ParsePrefix(p)
		if err != nil {
			var addr netip.Addr
			if addr, err = netip.ParseAddr(p); err == nil {
				network = netip.PrefixFrom(addr, addr.BitLen())
			}
		}
		if err != nil {
			return Sources{}, fmt.Errorf("%q must be an address or a network, for example 10.0.0.0/8", p)
		}
		s.trusted = append(s.trusted, network.Masked())
	}
	return s, nil
}

// sourceBits is how much of an IPv6 address is one source: whoever has an address there has the whole network.
const sourceBits = 64

// Of returns the source of a request: an IPv4 address or an IPv6 network. The zero value stands for all that have no
// address.
func (s Sources) Of(r *http.Request) netip.Prefix {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr := peer.Addr().Unmap()
	if s.trusts(addr) {
		addr = s.behind(addr, r.Header.Values("X-Forwarded-For"))
	}
	if addr.Is4() {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	network, _ := addr.WithZone("").Prefix(sourceBits) // fails for other numbers of bits only
	return network
}

// behind returns the last address that was not added about a trusted proxy, or the one nearest to it.
func (s Sources) behind(proxy netip.Addr, forwarded []string) netip.Addr {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= 0 && s.trusts(proxy); i-- {
		hop := strings.TrimSpace(hops[i])
		addr, err := netip.ParseAddr(hop)
		if err != nil {
			withPort, err := netip.ParseAddrPort(hop)
			if err != nil {
				break
			}
			addr = withPort.Addr()
		}
		proxy = addr.Unmap()
	}
	return proxy
}

func (s Sources) trusts(a netip.Addr) bool {
	for _, network := range s.trusted {
		if network.Contains(a) {
			return true
		}
	}
	return false
}
