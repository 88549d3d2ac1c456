package pairing

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// provenKey is the key of *proven in a context.
type provenKey struct{}

// proven is a node whose signature was checked. Prove accepts it in place of a signed nonce.
type proven struct {
	node Node
	own  bool // the credential belongs to the node
}

func (p *proven) prove(c registry.Credential) error {
	if !IsNode(c) || subtle.ConstantTimeCompare(c.PublicKey, p.node.PublicKey) != 1 {
		return unsigned("The credential belongs to another device.")
	}
	p.own = true
	return nil
}

// AdmitNode decides whether an OpenClaw node may connect, and as whom. The caller has checked the node's signature. The
// error is *NodePending, *NodeRefused or a *registry.Error.
//
//  1. The node's own credential, in DeviceToken or Token, must have its key.
//  2. Any other Token with the role device admits it if it is not paired.
//  3. A setup code pairs it.
//  4. Without any of them, a request to pair waits for an approver. After the approval the node gets its credential.
func (s *Service) AdmitNode(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	if n.DeviceID != NodeID(n.PublicKey) {
		return AdmittedNode{}, registry.Errorf(registry.CodeInvalidRequest,
			"device.id: must be the SHA-256 of the public key.")
	}
	if err := n.validate(); err != nil {
		return AdmittedNode{}, err
	}
	switch {
	case n.DeviceToken != "":
		return s.admitOwn(ctx, r, n)
	case n.Token != "":
		return s.admitToken(ctx, r, n)
	case n.BootstrapToken != "":
		return s.admitSetup(ctx, r, n)
	default:
		return s.admitUnknown(ctx, r, n)
	}
}

// identify returns the identity of a token, and whether it is the node's own credential.
func (s *Service) identify(ctx context.Context, r *http.Request, n Node, token string) (auth.Identity, bool, error) {
	p := &proven{node: n}
	id, err := s.nodes.Auth.Authenticate(context.WithValue(ctx, provenKey{}, p), r, token)
	if err == nil && IsPaired(id) && !p.own {
		err = unsigned("The credential belongs to another device.")
	}
	return id, p.own, err
}

// admitOwn admits a node by DeviceToken. A node that comes from another gateway still has that gateway's: without
// another credential it asks to be paired.
func (s *Service) admitOwn(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	token := n.DeviceToken
	n.DeviceToken = ""
	id, own, err := s.identify(ctx, r, n, token)
	switch {
	case err == nil && own:
		return s.renew(ctx, r, n, id, token)
	case err == nil: // a node may send any token here
		n.Token = token
		return s.admitToken(ctx, r, n)
	case !errors.Is(err, registry.CodeUnauthenticated):
		return AdmittedNode{}, err
	case auth.IsSecret(token):
		return AdmittedNode{}, s.refuseToken(r, token, NodeDeviceToken, err)
	}
	if admitted, found, err := s.admitImported(ctx, r, n, token); found || err != nil {
		return admitted, err
	}
	return s.AdmitNode(ctx, r, n)
}

// admitToken admits a node by Token.
func (s *Service) admitToken(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	id, own, err := s.identify(ctx, r, n, n.Token)
	if errors.Is(err, registry.CodeUnauthenticated) {
		if !auth.IsSecret(n.Token) {
			if admitted, found, err := s.admitImported(ctx, r, n, n.Token); found || err != nil {
				return admitted, err
			}
		}
		reason := NodeToken
		if strings.HasPrefix(n.Token, auth.PrefixDevice) {
			reason = NodeDeviceToken
		}
		return AdmittedNode{}, s.refuseToken(r, n.Token, reason, err)
	}
	switch {
	case err != nil:
		return AdmittedNode{}, err
	case own:
		return s.renew(ctx, r, n, id, n.Token)
	case !id.Has(auth.RoleDevice):
		return AdmittedNode{}, refuseNode(NodeRole, auth.NeedRole(id, auth.NameDevice))
	case id.Device != "" && id.Device != n.DeviceID:
		return AdmittedNode{}, refuseNodef(NodeToken, "The token is bound to the device %q. Use another.", id.Device)
	}
	switch paired, err := s.Paired(ctx, id.Tenant, n.DeviceID); {
	case err != nil:
		return AdmittedNode{}, err
	case paired:
		return AdmittedNode{}, refuseNodef(NodeOwnToken,
			"This node is paired and must use its own credential. Remove the token from its settings, or revoke the "+
				"device and pair it again.")
	}
	return AdmittedNode{Identity: id}, nil
}

// admitUnknown admits a node without any credential if the gateway needs none. Otherwise the node asks to be paired.
func (s *Service) admitUnknown(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	id, _, err := s.identify(ctx, r, n, "")
	if err != nil && !errors.Is(err, registry.CodeUnauthenticated) {
		return AdmittedNode{}, err
	}
	if err == nil && id.Has(auth.RoleDevice) && (id.Device == "" || id.Device == n.DeviceID) {
		if paired, err := s.Paired(ctx, id.Tenant, n.DeviceID); err != nil || !paired {
			return AdmittedNode{Identity: id}, err
		}
	}
	return s.askAsNode(ctx, r, n)
}

// admitImported admits a node by the credential that it had at another gateway, whose digest was imported. It gets one
// of Farhand in its place. Other secrets of Farhand are never looked up here.
func (s *Service) admitImported(
	ctx context.Context, r *http.Request, n Node, token string,
) (_ AdmittedNode, found bool, err error) {
	if len(token) < minImportedToken || len(token) > maxImportedToken {
		return AdmittedNode{}, false, nil
	}
	digest := auth.SecretDigest(token)
	c, err := s.cfg.Store.CredentialByDigest(ctx, digest)
	if errors.Is(err, registry.CodeNotFound) {
		return AdmittedNode{}, false, nil
	}
	if err != nil {
		return AdmittedNode{}, false, err
	}
	id, err := auth.IdentityOf(c)
	if err == nil && (&proven{node: n}).prove(c) != nil {
		return AdmittedNode{}, false, nil
	}
	if err == nil && s.cfg.Ended != nil {
		err = s.cfg.Ended(ctx, &id)
	}
	if errors.Is(err, registry.CodeUnauthenticated) {
		return AdmittedNode{}, true, s.refuseToken(r, token, NodeDeviceToken, err)
	}
	if err != nil {
		return AdmittedNode{}, true, err
	}
	admitted, err := s.newSecret(ctx, r, n, c, digest)
	return admitted, true, err
}

// Lengths of tokens of other gateways that are looked up. OpenClaw's have 32 random bytes.
const (
	minImportedToken = 32
	maxImportedToken = 512
)

// renew admits a node by its own credential. If it is due, the node gets a new secret, and the presented one works
// until the node has used the new one, but no longer than auth.DefaultOverlap. A node that still presents the former
// secret did not get the new one, and gets another.
func (s *Service) renew(
	ctx context.Context, r *http.Request, n Node, id auth.Identity, token string,
) (AdmittedNode, error) {
	c, err := s.cfg.Store.Credential(ctx, id.Tenant, strings.TrimPrefix(id.Credential, credentialPrefix))
	if err != nil {
		return AdmittedNode{}, gone(err)
	}
	switch digest := auth.SecretDigest(token); {
	case c.Renew, c.Former == digest:
		return s.newSecret(ctx, r, n, c, digest)
	case c.Former != "" && c.Digest == digest:
		err = s.update(ctx, c, func(c *registry.Credential) { c.FormerEnds = c.CreatedAt })
	}
	return AdmittedNode{Identity: id}, err
}

// Renew has a node get a new secret when it next connects. Until the node has used it, the current one works: for at
// most auth.DefaultOverlap after that connection. Other devices ask for a new secret themselves.
func (s *Service) Renew(ctx context.Context, by Approver, id string) (Device, error) {
	d, err := s.Device(ctx, by, id)
	if err == nil && !IsNode(d.Credential) {
		err = registry.Errorf(registry.CodeInvalidRequest, "The device is no OpenClaw node: rotate its credential.")
	}
	if err != nil {
		return Device{}, err
	}
	d.Credential, err = s.cfg.Store.UpdateCredential(ctx, d.Tenant, d.ID, func(c *registry.Credential) error {
		c.Renew = true
		return nil
	})
	return d, gone(err)
}

// storeSkew is how far the clocks of this pod and of the store may be apart.
const storeSkew = time.Minute

// nodeComesBack is how long a node whose secret may have leaked can connect with it, to get another.
const nodeComesBack = 10 * time.Minute

// RenewLeaked is Renew for a secret that may have leaked. It works until the node has used its new one, for at most
// 10 minutes from now, whether or not the node connects. Afterwards the node must be paired again. Asking again before
// then changes nothing. The caller ends the node's connection, so that the node comes back now.
func (s *Service) RenewLeaked(ctx context.Context, by Approver, id string) (Device, error) {
	before, err := s.Device(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	if before.Renew && before.Former != "" && time.Until(before.FormerEnds) < nodeComesBack+storeSkew {
		return before, nil // asked again: the secret that another rotation would drop is the node's
	}
	d, err := s.Renew(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	// The new secret is dropped. So the one that was read is the former, which expires, and gets the node another. It
	// is named, because the second of two rotations at a time would otherwise keep the dropped one.
	_, d.Credential, err = auth.Issuer{Store: s.cfg.Store}.RotateDevice(ctx, d.Credential, nodeComesBack, d.Digest)
	return d, gone(err)
}

// newSecret gives a node's credential a new secret, which replaces all but the one with the digest keep.
func (s *Service) newSecret(
	ctx context.Context, r *http.Request, n Node, c registry.Credential, keep string,
) (AdmittedNode, error) {
	if err := n.reserve(c); err != nil {
		return AdmittedNode{}, err
	}
	secret, rotated, err := auth.Issuer{Store: s.cfg.Store}.RotateDevice(ctx, c, auth.DefaultOverlap, keep)
	if err != nil {
		return AdmittedNode{}, err
	}
	if rotated.Renew {
		if err := s.update(ctx, c, func(c *registry.Credential) { c.Renew = false }); err != nil {
			return AdmittedNode{}, err
		}
	}
	s.cfg.Log.Info("a node got a new secret", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant)
	return s.withSecret(ctx, r, n, secret)
}

func (s *Service) update(ctx context.Context, c registry.Credential, change func(*registry.Credential)) error {
	_, err := s.cfg.Store.UpdateCredential(ctx, c.Tenant, c.ID, func(c *registry.Credential) error {
		change(c)
		return nil
	})
	return err
}

// withSecret returns a node that was just given a secret, with the identity of it.
func (s *Service) withSecret(ctx context.Context, r *http.Request, n Node, secret string) (AdmittedNode, error) {
	id, _, err := s.identify(ctx, r, n, secret)
	return AdmittedNode{Identity: id, Token: secret}, err
}

// refuseToken records a wrong token, and returns the error for the node, which says what to do there. Node hosts print
// it, but cut a close reason at 120 bytes.
func (s *Service) refuseToken(r *http.Request, token string, reason NodeReason, err error) error {
	err = s.nodes.Refusals.Token(r, token, err)
	switch {
	case errors.Is(err, registry.CodeRateLimited):
		return refuseNode(NodeLimited, err)
	case reason == NodeDeviceToken:
		return refuseNodef(reason, "The node's credential is invalid: revoked, expired or of another key. "+
			"Start the node again to pair it.")
	default:
		return refuseNodef(reason, "This gateway does not know the token. "+
			"Remove OPENCLAW_GATEWAY_TOKEN from the node, to pair it.")
	}
}
