package jwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
)

// Bounds of what a provider says about itself.
const (
	maxMetadata  = 64 << 10        // bytes
	metadataWait = 3 * time.Second // for the first answer, per caller
)

// Metadata is what a page needs to know of an identity provider to let people sign in (OpenID Connect Discovery).
type Metadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"` // empty unless pages may reach it with TokenEndpoint
	ResponseModes         []string `json:"response_modes_supported"`
	Algorithms            []string `json:"id_token_signing_alg_values_supported"`
	SendsIssuer           bool     `json:"authorization_response_iss_parameter_supported"`
}

// TokenOrigin returns the origin of the token endpoint, which pages must be able to reach.
func (m *Metadata) TokenOrigin() string { return origin(m.TokenEndpoint) }

// Provider discovers an identity provider. It is safe for concurrent use. Call Close when done.
type Provider struct{ published *remote[*Metadata] }

// NewProvider returns the provider whose URL is cfg.Issuer. It discovers it in the background, and does not fail if
// that does. Of cfg, Issuer and what bounds fetches matters.
func NewProvider(cfg Config) (*Provider, error) {
	if err := errors.Join(cfg.fill(), CheckIssuer(cfg.Issuer)); err != nil {
		return nil, fmt.Errorf("jwt: %w", err)
	}
	return &Provider{newRemote(&cfg, "the endpoints of the identity provider", cfg.discover)}, nil
}

// Close cancels a running fetch and waits for it.
func (p *Provider) Close() { p.published.close() }

// Metadata returns what the provider last said, nil if that is not known. Unless it is, Metadata waits for a running
// fetch, at most 3 s. The result must not be changed.
func (p *Provider) Metadata(ctx context.Context) *Metadata {
	if known := p.published.current(); known != nil {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, metadataWait)
	defer cancel()
	return p.published.newer(ctx)
}

// CheckIssuer returns an error if people must not be sent to an issuer to sign in, or if it cannot be discovered.
func CheckIssuer(issuer string) error {
	if !safeURL(issuer) || strings.ContainsAny(issuer, "?#") {
		return errors.New("the issuer must be a URL like https://id.example.com, or http on localhost")
	}
	return nil
}

func (cfg *Config) discover(ctx context.Context) (*Metadata, error) {
	at := strings.TrimSuffix(cfg.Issuer, "/") + "/.well-known/openid-configuration"
	body, err := get(ctx, cfg.Client, at, "application/json", maxMetadata)
	if err != nil {
		return nil, err
	}
	var m Metadata
	switch err := json.Unmarshal(body, &m); {
	case err != nil:
		return nil, fmt.Errorf("%s is not valid JSON of a provider", at)
	case m.Issuer != cfg.Issuer: // another issuer could take over its sign-ins
		return nil, fmt.Errorf("%s names the issuer %.200q, FARHAND_JWT_ISSUER is %q", at, m.Issuer, cfg.Issuer)
	case !safeURL(m.AuthorizationEndpoint) || !safeURL(m.TokenEndpoint):
		return nil, fmt.Errorf("%s has no authorization_endpoint or token_endpoint with https", at)
	}
	if !safeURL(m.RevocationEndpoint) || origin(m.RevocationEndpoint) != m.TokenOrigin() {
		m.RevocationEndpoint = ""
	}
	return &m, nil
}

// safeURL reports whether a secret may be sent to a URL. Its origin is safe in a Content-Security-Policy.
func safeURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || slices.ContainsFunc([]byte(u.Host), notOfHost) {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackHost(u.Host)
}

// notOfHost reports whether a byte cannot be in a host with a port. IPv6 addresses have colons and brackets.
func notOfHost(b byte) bool {
	return (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') &&
		!strings.ContainsRune("-._:[]", rune(b))
}

func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Probe fetches once the key set of an identity provider, if the settings have its URL, and returns how many of its
// keys can be used. If discovery is set, it also fetches the endpoints where people sign in. Nothing of it is kept.
func Probe(ctx context.Context, s Settings, discovery bool) (keys int, err error) {
	cfg := Config{Settings: s}
	if err := cfg.fill(); err != nil {
		return 0, err
	}
	defer cfg.Client.CloseIdleConnections()
	if s.KeySetURL != "" {
		set, err := cfg.loadKeys(ctx)
		if err != nil {
			return 0, fmt.Errorf("the keys at FARHAND_JWT_JWKS_URL: %w", err)
		}
		keys = len(set)
	}
	if discovery {
		_, err = cfg.discover(ctx)
	}
	return keys, err
}
