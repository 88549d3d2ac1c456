package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"
)

// trust is which certificates a command accepts from a gateway: those of the system's authorities, and those of a file.
type trust struct {
	file string // PEM; empty: none

	once   sync.Once
	config *tls.Config // nil: the system's authorities
	web    *http.Client
	err    error
}

// tls returns the configuration of a connection to the gateway. A nil trust is the system's.
func (t *trust) tls() (*tls.Config, error) {
	if t == nil || t.file == "" {
		return nil, nil
	}
	t.once.Do(func() {
		if t.config, t.err = trustFile(t.file); t.err == nil {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.TLSClientConfig = t.config.Clone() // the transport adds HTTP/2, which sockets cannot use
			t.web = &http.Client{Transport: transport, CheckRedirect: stay}
		}
	})
	return t.config, t.err
}

// client returns the HTTP client for requests to the gateway. It follows no redirects: the token is only for the URL it
// was given with, and a gateway must not cause other requests.
func (t *trust) client() (*http.Client, error) {
	config, err := t.tls()
	if config == nil {
		return &http.Client{CheckRedirect: stay}, err
	}
	return t.web, nil
}

// stay makes a redirect the answer to a request.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func trustFile(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--ca (FARHAND_CA): %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca (FARHAND_CA): %s has no PEM certificate", file)
	}
	return &tls.Config{RootCAs: roots}, nil
}
