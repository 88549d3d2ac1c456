package pairing

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// setupTTL is how long a setup code works, as in OpenClaw.
const setupTTL = 10 * time.Minute

const setupPrefix = "fhs_" // of the secret in a setup code

// SetupRequest asks for a setup code.
type SetupRequest struct {
	User  string   // owner of the node; empty: the approver's user, or none if it has none
	Name  string   // for people; empty: the node's own name
	Tools []string // names or globs of tools that it may offer; nil: those that it declares when it pairs
}

// SetupMade is a new setup code. Secret is returned only here: it is the bootstrap token that the node sends.
type SetupMade struct {
	registry.Setup
	Secret string
}

// MakeSetup makes a setup code: an approval in advance, for the first node that sends it.
func (s *Service) MakeSetup(ctx context.Context, by Approver, r SetupRequest) (SetupMade, error) {
	if s.cfg.Mode == ModeOff {
		return SetupMade{}, registry.Errorf(registry.CodeNotFound, "Pairing is off on this gateway (FARHAND_PAIRING).")
	}
	d, err := approval(by, registry.Pairing{}, Decision{User: r.User, Name: r.Name, Tools: r.Tools})
	if err != nil {
		return SetupMade{}, err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret := setupPrefix + base64.RawURLEncoding.EncodeToString(random)
	made, err := s.cfg.Store.CreateSetup(ctx, registry.Setup{
		Digest: auth.SecretDigest(secret), Tenant: by.Tenant, User: d.User, Name: d.Name, Tools: r.Tools,
		Scope: by.Tools, By: d.By, ByUser: d.ByUser, Viewer: by.Viewer(),
	}, setupTTL)
	if err != nil {
		return SetupMade{}, err
	}
	s.cfg.Log.Info("a setup code was made", "tenant", by.Tenant, "by", d.By)
	return SetupMade{made, secret}, nil
}

// SetupScheme begins a setup code that is a link.
const SetupScheme = "oc-pair://"

// Code returns the setup code for a node that connects to a URL of NodeURL: JSON in base64url, as OpenClaw's apps scan
// it (its src/pairing/setup-code.ts).
func (m SetupMade) Code(url string) string {
	text, _ := json.Marshal(struct { // cannot fail
		URL            string `json:"url"`
		BootstrapToken string `json:"bootstrapToken"`
		ExpiresAtMS    int64  `json:"expiresAtMs"`
	}{url, m.Secret, m.ExpiresAt.UnixMilli()})
	return base64.RawURLEncoding.EncodeToString(text)
}

const maxNodeURL = 512 // bytes: longer ones make QR codes that cameras cannot read

// NodeURL returns a URL as nodes accept it: ws or wss, a host, and perhaps a port and a path.
func NodeURL(text string) (string, error) {
	u, err := url.Parse(text)
	schemes := map[string]string{"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
	if err != nil || schemes[u.Scheme] == "" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || len(text) > maxNodeURL {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"url: %.80q must be where nodes connect, for example wss://gateway.example.com/ws/node.", text)
	}
	return schemes[u.Scheme] + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/"), nil
}

// admitSetup pairs a node that has a setup code. A node that did not get its credential may use the code again, but not
// one whose credential was revoked: a revoked device must not pair itself.
func (s *Service) admitSetup(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	made, err := registry.Setup{}, error(registry.ErrNoSetup)
	if strings.HasPrefix(n.BootstrapToken, setupPrefix) && s.cfg.Mode != ModeOff {
		made, err = s.cfg.Store.UseSetup(ctx, auth.SecretDigest(n.BootstrapToken), n.DeviceID)
	}
	if errors.Is(err, registry.CodeNotFound) {
		err = registry.Errorf(registry.CodeUnauthenticated, "%s", registry.ErrNoSetup.Message)
		return AdmittedNode{}, s.refuseToken(r, n.BootstrapToken, NodeSetup, err)
	}
	if err != nil {
		return AdmittedNode{}, err
	}
	p := registry.Pairing{
		DeviceID: n.DeviceID, DeviceName: n.DeviceName, Platform: n.Platform, Client: n.Client,
		PublicKey: n.PublicKey, CreatedAt: made.CreatedAt, Decision: &registry.PairingDecision{
			Approved: true, Tenant: made.Tenant, User: made.User, Name: cmp.Or(made.Name, n.DeviceName),
			Tools: made.Tools, By: made.By, ByUser: made.ByUser,
		},
	}
	if made.Tools == nil {
		p.Decision.Tools = slices.DeleteFunc(n.names(), func(name string) bool { return !covers(made.Scope, name) })
	}
	credential := auth.NewCredentialID()
	if err := n.reserve(credentialOf(p, credential)); err != nil { // the node may use the code again
		return AdmittedNode{}, err
	}
	secret, err := s.pairBySetup(ctx, made, p, credential)
	e := registry.AuditEntry{
		Tenant: made.Tenant, Actor: registry.AuditActor{
			User: made.ByUser, Credential: made.By, Source: auth.SourceName(s.nodes.Sources.Network(r)),
		},
		Action: registry.AuditPairSetup, DeviceID: n.DeviceID,
	}
	e.Decide(err)
	s.cfg.Audit.Note(e)
	if err != nil {
		return AdmittedNode{}, err
	}
	return s.withSecret(ctx, r, n, secret)
}

// pairBySetup creates the credential of a node, with an id, in place of those that it has in the tenant.
func (s *Service) pairBySetup(
	ctx context.Context, made registry.Setup, p registry.Pairing, credential string,
) (string, error) {
	switch err := s.stillTrusted(ctx, p); {
	case errors.Is(err, registry.CodeNotFound):
		return "", refuseNodef(NodeSetup, "The approver or user of the setup code was revoked. Make another one.")
	case err != nil:
		return "", err
	}
	if made.Credential != "" {
		_, err := s.cfg.Store.Credential(ctx, made.Tenant, made.Credential)
		if errors.Is(err, registry.CodeNotFound) {
			return "", refuseNodef(NodeSetup, "The device that was paired with this setup code was revoked. "+
				"Make another code.")
		}
		if err != nil {
			return "", err
		}
	}
	paired, err := s.cfg.Store.PairedDevices(ctx, made.Tenant, p.DeviceID)
	if err != nil {
		return "", err
	}
	for _, c := range paired {
		if made.Viewer != "" && c.User != "" && c.User != made.Viewer {
			return "", refuseNodef(NodeSetup, "The node is paired for another user. Have an admin revoke the device.")
		}
	}
	if made.Credential != "" {
		// Until there is a new one. If the store fails before, the node may use the code again.
		if err := s.noteSetup(ctx, made, ""); err != nil {
			return "", err
		}
	}
	for _, c := range paired {
		_, err := s.cfg.Store.RevokeCredential(ctx, c.Tenant, c.ID)
		if err != nil && !errors.Is(err, registry.CodeNotFound) {
			return "", err
		}
	}
	secret, err := s.issue(ctx, p, credential)
	if err != nil {
		return "", err
	}
	if err := s.noteSetup(ctx, made, credential); err != nil {
		_, revoking := s.cfg.Store.RevokeCredential(ctx, made.Tenant, credential)
		return "", cmp.Or(revoking, err)
	}
	return secret, nil
}

// noteSetup notes the credential that the node of a setup code has, empty if none. It refuses the node if the device
// was revoked meanwhile, which voids the code, or if the code has just expired.
func (s *Service) noteSetup(ctx context.Context, made registry.Setup, credential string) error {
	err := s.cfg.Store.PairSetup(ctx, made.Digest, credential)
	if errors.Is(err, registry.CodeNotFound) {
		return refuseNodef(NodeSetup, "The setup code has expired, or the device was revoked. Make another code.")
	}
	return err
}
