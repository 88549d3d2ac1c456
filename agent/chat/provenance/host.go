package provenance

import (
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// isIPv6 reports whether a text is an IPv6 address, without brackets. Public ones begin with a digit.
func isIPv6(s string) bool {
	if strings.Count(s, ":") < 2 || !strings.ContainsAny(s, "0123456789") {
		return false
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

// isHexIPv4 reports whether a text is an IPv4 address with hexadecimal numbers, which many programs take: one of eight
// digits, or two to four numbers, any of them hexadecimal. One number that may be an error code is an address only if
// sure is set.
func isHexIPv4(s string, sure bool) bool {
	if !strings.Contains(s, "0x") || len(s) > 4*len("0x00000000.") {
		return false
	}
	parts := strings.Split(s, ".")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 0, 32); err != nil || strings.Contains(part, "_") {
			return false
		}
	}
	if len(parts) == 1 {
		return len(s) == len("0x00000000") && (sure || !errorCode(s))
	}
	return len(parts) <= 4
}

// errorCode reports whether a hexadecimal number looks like an error code of Windows: an HRESULT of a facility below
// 0x40, an NTSTATUS, or a stop code. As addresses they are reserved ones, and those of a few universities.
func errorCode(s string) bool {
	return strings.HasPrefix(s, "0x80") && s[4] < '4' || strings.HasPrefix(s, "0xc0000") ||
		strings.HasPrefix(s, "0x0000") && s != "0x00000000"
}

// fileEnds are top-level domains that are also common file name extensions.
const fileEnds = " ai app cc md mov pl ps py rs sh so st zip name "

// isHost reports whether a text is a host name or an IP address. A possible file name is one only if sure is set.
func isHost(s string, sure bool) bool {
	dot := strings.LastIndexByte(s, '.')
	if dot <= 0 || dot == len(s)-1 || len(s) > 253 || strings.Contains(s, "..") {
		return false
	}
	numeric := true
	for i := range len(s) {
		b := s[i]
		if b != '.' && b != '-' && (b < 0x80 && !isWord(rune(b))) {
			return false
		}
		numeric = numeric && (b == '.' || b >= '0' && b <= '9')
	}
	if numeric {
		return strings.Count(s, ".") == 3
	}
	suffix, listed := publicsuffix.PublicSuffix(s)
	if !listed && !strings.Contains(suffix, ".") || suffix == s {
		return false
	}
	return sure || !strings.Contains(fileEnds, " "+suffix+" ")
}
