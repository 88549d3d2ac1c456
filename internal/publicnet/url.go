package publicnet

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// maxURL is how many bytes a URL may have.
const maxURL = 8 << 10

// CheckURL says what is wrong with a URL as far as its text tells, for a URL that somebody else will load, in a network
// of their own. Only http and https are allowed. Names are not resolved, but those of this machine and of the services
// that hand out credentials are known. An address must be written plainly: 127.1, 0x7f000001 and 017700000001 mean
// different things to different programs. The errors do not repeat the URL, which may hold a secret.
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

// refused is an error with ErrRefused as its cause, whose text is fit for people.
type refused string

// Error implements error.
func (r refused) Error() string { return string(r) }

// Unwrap returns ErrRefused.
func (refused) Unwrap() error { return ErrRefused }

func refusedf(format string, args ...any) error { return refused(fmt.Sprintf(format, args...)) }

// checkAddr is Check with a text that is fit for people.
func (g Guard) checkAddr(addr netip.Addr) error {
	if err := g.Check(addr); err != nil {
		return refused(strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "))
	}
	return nil
}

// odd reports whether a character is one that programs read in different ways, or that nobody sees.
func odd(r rune) bool { return r == '\\' || r == ' ' || !unicode.IsPrint(r) }

// checkHost says what is wrong with a host as far as its text tells.
func (g Guard) checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkAddr(addr)
	}
	if plain, err := url.PathUnescape(host); err == nil {
		host = plain
	}
	plain, err := idna.Lookup.ToASCII(host) // as browsers read it: look-alike letters and dots made plain
	switch {
	case err == nil:
		host = plain
	case strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }):
		return refusedf("the host is no name that a browser would take")
	}
	host = strings.TrimRight(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkAddr(addr)
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; last == "" || isNumber(last) {
		return refusedf("write an address plainly, as four numbers or as IPv6 in brackets")
	}
	return g.checkName(host)
}

// checkName says what is wrong with a name in lower case that has no dot at its end.
func (g Guard) checkName(host string) error {
	switch host {
	case "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal":
		return refusedf("%s is where a cloud provider hands out credentials", host)
	}
	local := host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain" ||
		host == "ip6-localhost" || host == "ip6-loopback"
	if local && !g.AllowPrivate {
		return refusedf("%s is a machine's name for itself", host)
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
