package wake

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
)

// The names of a certificate are in the error for another host, also if nothing vouches for it.
func TestReasonsAreShortAndClean(t *testing.T) {
	var names []string
	for i := range 90 {
		names = append(names, fmt.Sprintf("%s%d.example.com", strings.Repeat("\x1b", 2000), i))
	}
	err := x509.HostnameError{Host: "push.example.com", Certificate: &x509.Certificate{DNSNames: names}}
	for _, res := range []result{failure(err), refused(err)} {
		if len(res.reason) > maxReason || strings.Contains(res.reason, "\x1b") || res.reason == "" {
			t.Errorf("%d bytes: %.100q", len(res.reason), res.reason)
		}
	}
}
