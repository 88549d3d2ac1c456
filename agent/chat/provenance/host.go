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

// isHexIPv4 reports whether a text is an IPv4 address with hexadecimal numbers, which many programs take: one number of
// at least 1.0.0.0, or two to four, any of them hexadecimal. One number of other than eight digits, or one that may be
// an error code, is an address only if sure is set.
func isHexIPv4(s string, sure bool) bool {
	if !strings.Contains(s, "0x") || len(s) > 4*len("0x00000000.") {
		return false
	}
	parts := strings.Split(s, ".")
	first := uint64(0)
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		if err != nil || strings.Contains(part, "_") {
			return false
		}
		if i == 0 {
			first = n
		}
	}
	if len(parts) == 1 {
		return sure && first >= 1<<24 || len(s) == len("0x00000000") && (sure || !errorCode(s))
	}
	return len(parts) <= 4
}

// isNumericIPv4 reports whether a text is an IPv4 address of one to four decimal or octal numbers. The last may stand
// for several, as many programs take it: 2130706433 and 127.1 are 127.0.0.1. A number with a leading zero is octal for
// some programs and decimal for others. One number is an address only if it is at least 1.0.0.0.
func isNumericIPv4(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) > 4 || len(s) > 4*len("00000000000.") {
		return false
	}
	for i, part := range parts {
		most := uint64(255)
		if i == len(parts)-1 {
			most = 1<<(8*(5-len(parts))) - 1
		}
		least := uint64(0)
		if len(parts) == 1 {
			least = 1 << 24
		}
		in := func(base int) bool {
			n, err := strconv.ParseUint(part, base, 64)
			return err == nil && n >= least && n <= most
		}
		if !in(10) && !(part != "" && part[0] == '0' && in(8)) {
			return false
		}
	}
	return true
}

// isBareIPv4 reports whether a text is an IPv4 address of one or two numbers, and hardly a price, a ratio or a day: a
// path or port follows, and it has ten digits, or its second number has five.
func isBareIPv4(s, rest string) bool {
	if len(rest) < 2 || strings.IndexByte("/:", rest[0]) < 0 || !isNumericIPv4(s) || s[0] == '0' {
		return false
	}
	_, second, two := strings.Cut(s, ".")
	if isPath := rest[0] == '/' && !isDigit(rest[1]); two && !isPath {
		return len(second) > 5
	}
	return two && len(second) >= 5 && strings.IndexByte(second, '.') < 0 || len(s) == len("4294967295")
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// isPort reports whether a text after a possible file name is a port, and not the number of a line: a usual port, or
// the name has more parts than those of files.
func isPort(host, port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && (n >= 1024 || n == 21 || n == 22 || n == 25 || n == 53 || n == 80 || n == 443 ||
		strings.Count(host, ".") > 1)
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

// hasLongNumber reports whether a text has a slash beside the digits of an IPv4 address in one number.
func hasLongNumber(s string) bool {
	return strings.IndexByte(s, '/') >= 0 && countDigits(s) >= len("16777216")
}

// innerSlashes returns where, from at on, a URL without a scheme begins inside a text, such as ?next=//b.example. It
// returns zero if there is none.
func innerSlashes(piece string, at int) int {
	for at < len(piece) {
		i := strings.Index(piece[at:], "//")
		if i < 0 {
			return 0
		}
		at += i
		if b := piece[at-1]; b < 0x80 && !isWord(rune(b)) && strings.IndexByte(":/._", b) < 0 {
			return at
		}
		at += 2
	}
	return 0
}

// urlNames are names of parameters whose value is fetched or receives data.
const urlNames = " url uri link href host hostname ip domain website webpage endpoint webhook "

func isURLName(pointer string) bool {
	name := ""
	for _, step := range strings.Split(pointer, "/") {
		if step != "" && !isIndex(step) { // otherwise an element of the named list
			name = step
		}
	}
	if i := strings.LastIndexAny(name, "_-"); i >= 0 {
		name = name[i+1:]
	}
	for i := len(name) - 1; i > 0; i-- {
		if isUpper(name[i]) && !isUpper(name[i-1]) { // imageUrl
			name = name[i:]
			break
		}
	}
	return strings.Contains(urlNames, " "+strings.TrimSuffix(strings.ToLower(name), "s")+" ")
}

func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }
