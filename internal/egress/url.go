package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/farhand/farhand/internal/publicnet"
)

// ErrRefused is the cause of every error that says that something must not be connected to.
var ErrRefused = publicnet.ErrRefused

// maxURL is how many bytes a URL may have.
const maxURL = 8 << 10

// CheckURL says what is wrong with a URL as far as its text tells. Names are not resolved.
func (c Config) CheckURL(text string) error {
	if len(text) > maxURL {
		return fmt.Errorf("the URL is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		var why *url.Error
		if errors.As(err, &why) {
			err = why.Err // the text is not repeated: it may hold a password
		}
		return fmt.Errorf("the URL is malformed: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%w: only http and https URLs may be opened, not %q", ErrRefused, u.Scheme)
	case u.User != nil:
		return fmt.Errorf("%w: leave the user name and the password out of the URL", ErrRefused)
	case u.Hostname() == "":
		return errors.New("the URL has no host: write it as https://example.com/page")
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return fmt.Errorf("the URL is malformed: the port %q is no number", p)
		}
	}
	if err := c.checkPort(port); err != nil {
		return err
	}
	return c.checkHost(u.Hostname())
}

func (c Config) checkPort(port int) error {
	if !c.allows(port) {
		return fmt.Errorf("%w: port %d is not open for the browser", ErrRefused, port)
	}
	return nil
}

// checkHost says what is wrong with a host as far as its text tells.
func (c Config) checkHost(host string) error {
	host = canonicalHost(host)
	if addr, ok := parseAddr(host); ok {
		return c.guard().Check(addr)
	}
	local := host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain"
	if local && !c.AllowPrivate {
		return fmt.Errorf("%w: %s is this machine", ErrRefused, host)
	}
	if host == "metadata" || host == "metadata.google.internal" || host == "instance-data.ec2.internal" {
		return fmt.Errorf("%w: %s is where a cloud provider hands out credentials", ErrRefused, host)
	}
	return nil
}

// canonicalHost is a host as browsers read it: percent-decoded, look-alike letters and dots made plain, in lower case,
// without a dot at its end.
func canonicalHost(host string) string {
	if plain, err := url.PathUnescape(host); err == nil {
		host = plain
	}
	if plain, err := idna.Lookup.ToASCII(host); err == nil {
		host = plain
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// parseAddr reads an IP address in any form that browsers take, such as 0x7f.1.
func parseAddr(host string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr, true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, part := range parts {
		n, ok := parseNumber(part)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i) // the last part fills what is left
		}
		if !ok || n >= 1<<bits {
			return netip.Addr{}, false
		}
		all = all<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true
}

// parseNumber reads a number as C does: with 0x it is hexadecimal, with 0 octal.
func parseNumber(text string) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(text, "0x"):
		text, base = text[2:], 16
		if text == "" {
			return 0, true
		}
	case len(text) > 1 && text[0] == '0':
		text, base = text[1:], 8
	}
	n, err := strconv.ParseUint(text, base, 64)
	return n, err == nil
}
