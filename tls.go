package farhand

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/certificate"
	"github.com/farhand/farhand/internal/listener"
	"github.com/farhand/farhand/registry"
)

// Limits of an HTTP/2 connection. The requests that it has in flight count like those of HTTP/1.1. What it sends before
// a handler reads it does not, so that is little.
const (
	maxStreams    = 100
	maxUnreadBody = 256 << 10 // bytes of all requests of a connection
)

// checkTLS reports whether the files of certificate and key can be used.
func (c Config) checkTLS() error {
	switch {
	case c.TLSCert == "" && c.TLSKey == "":
		return nil
	case c.TLSCert == "" || c.TLSKey == "":
		return errors.New("set both or neither: a certificate is of no use without its key")
	}
	_, err := certificate.Load(c.TLSCert, c.TLSKey)
	return err
}

// openCertificate opens the certificate, if there is one.
func (g *Gateway) openCertificate() (err error) {
	if g.cfg.TLSCert != "" {
		g.certificate, err = certificate.Open(g.cfg.TLSCert, g.cfg.TLSKey, certificate.DefaultInterval, g.log)
	}
	return err
}

// tlsConfig returns the configuration of HTTPS.
func (g *Gateway) tlsConfig() (*tls.Config, *http.HTTP2Config) {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: g.certificate.Get}, &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnreadBody,
		MaxReceiveBufferPerStream: maxUnreadBody,
	}
}

// serve serves the connections of a listener until it is closed.
func (g *Gateway) serve(l net.Listener) error {
	if g.certificate == nil {
		return g.server.Serve(l)
	}
	plain := &listener.Plain{Listener: l, Handler: http.HandlerFunc(g.servePlain), MaxBytes: maxHeaderBytes}
	return g.server.ServeTLS(plain, "", "")
}

// servePlain answers a request that came over plain HTTP to a gateway with a certificate. Health checks are answered,
// because a redirect would count as success to many of them. Reading requests are redirected. A credential is not: its
// sender must learn that it travels unencrypted.
func (g *Gateway) servePlain(w http.ResponseWriter, r *http.Request) {
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	bare := r.Header.Get("Authorization") == "" && r.Header.Get("Upgrade") == ""
	switch {
	case reading && slices.Contains([]string{"/healthz", "/health", "/readyz"}, r.URL.Path):
		ctx, cancel := context.WithTimeout(r.Context(), readHeaderTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		r.Header.Del("Authorization")
		g.handler.ServeHTTP(w, r)
	case reading && bare && r.Host != "" && httpguts.ValidHostHeader(r.Host) && r.URL.Path != "" &&
		r.URL.Path[0] == '/':
		w.Header().Set("Location", "https://"+r.Host+r.URL.RequestURI())
		w.Header().Set("Cache-Control", "no-store") // the gateway may serve plain HTTP again tomorrow
		w.WriteHeader(http.StatusPermanentRedirect)
	default:
		_ = auth.WriteProblem(w, auth.ProblemOf(registry.Errorf(registry.CodeInvalidRequest,
			"This address speaks HTTPS only. Use https:// or wss://, and replace any credential that you sent.")))
	}
}

// certificateFault returns why clients reject a certificate that can be used, as far as the gateway can know.
func (c Config) certificateFault() error {
	if c.TLSCert == "" {
		return nil
	}
	pair, err := certificate.Load(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil // checkTLS reports it
	}
	return certificate.Valid(pair.Leaf, time.Now())
}

func checkCertificate(_ context.Context, cfg Config) (string, error) {
	if err := cfg.checkTLS(); err != nil {
		return "", err
	}
	if cfg.TLSCert == "" {
		return "plain HTTP: set FARHAND_TLS_CERT and FARHAND_TLS_KEY, or let a load balancer terminate TLS", nil
	}
	pair, err := certificate.Load(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return "", err
	}
	return certificate.Describe(pair.Leaf), certificate.Valid(pair.Leaf, time.Now())
}
