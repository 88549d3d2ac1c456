package pairing

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Times of requests of nodes. A node has no secret to poll with: it connects again, about every 30 s.
const (
	nodeRenewals = 12               // a request lives for at most this many Config.TTL, while its node asks again
	nodeDecided  = time.Hour        // how long an approval waits for its node, and a rejection stands
	nodeGrace    = 10 * time.Minute // how long a new credential can be given again, by the key alone
)

// nodeRetries limits how often nodes of one source may ask again on a pod.
var nodeRetries = auth.Limit{Rate: 10, Burst: 100}

func (n Node) validate() error {
	return registry.Session{DeviceID: n.DeviceID, DeviceName: n.DeviceName, Platform: n.Platform, Name: n.Client}.
		ValidateAttributes()
}

// names returns the names of tools that a request can have. The device registers the others, which then wait.
func (n Node) names() (names []string) {
	for _, name := range n.Tools {
		if len(names) < registry.MaxPairingTools && checkGlob(name) == nil && !isGlob(name) {
			names = append(names, name)
		}
	}
	return names
}

// askAsNode stores the request of a node or, if it is decided, acts on the decision.
func (s *Service) askAsNode(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	if s.cfg.Mode == ModeOff {
		return AdmittedNode{}, refuseNodef(NodeUnknown,
			"The node needs a token: pairing is off on this gateway (FARHAND_PAIRING).")
	}
	source := s.nodes.Sources.Network(r)
	if !s.retries.Take(source, 1) {
		return AdmittedNode{}, registry.Errorf(registry.CodeRateLimited,
			"Too many nodes of this address wait to be paired. Retry later.").RetryIn(time.Second)
	}
	p, err := s.cfg.Store.NodePairing(ctx, n.DeviceID)
	switch {
	case errors.Is(err, registry.CodeNotFound):
		return AdmittedNode{}, s.pend(ctx, n, source, nil)
	case err != nil:
		return AdmittedNode{}, err
	case p.Collected != "":
		return s.giveAgain(ctx, r, n, p)
	}
	switch StateOf(p) {
	case StateApproved:
		return s.collectAsNode(ctx, r, n, p)
	case StateRejected:
		return AdmittedNode{}, refuseNodef(NodeRejected, "An approver rejected this node. It may ask again %v after "+
			"the decision. To pair it earlier, use a setup code.", nodeDecided)
	default:
		return AdmittedNode{}, s.pend(ctx, n, source, &p)
	}
}

// The id of a node's request ends with its code, because OpenClaw's node host shows people the id, and no other text of
// the gateway. An approver who knows the id can approve the request, so logs have only its beginning.

// pend stores a request or renews the one before, nil if there is none. It returns *NodePending or why it failed.
func (s *Service) pend(ctx context.Context, n Node, source netip.Prefix, before *registry.Pairing) error {
	p := registry.Pairing{
		Source: source.String(), Network: networkOf(source), DeviceID: n.DeviceID, DeviceName: n.DeviceName,
		Platform: n.Platform, Client: n.Client, PublicKey: n.PublicKey, Tools: n.names(),
	}
	if s.cfg.Mode == ModeOpen {
		p.Tenant = registry.DefaultTenant
	}
	if (before == nil || !before.SameAsk(p)) && !s.requests.Take(source, 1) {
		return registry.Errorf(registry.CodeRateLimited, "Too many pairing requests from this address. Retry later.").
			RetryIn(time.Duration(float64(time.Second) / RequestRate().Rate))
	}
	for range codeAttempts {
		p.Code = newCode()
		p.ID, p.CodeDigest = registry.NodePairingID(n.DeviceID, strings.ToLower(p.Code)), codeDigest(p.Code)
		stored, err := s.cfg.Store.AskPairing(ctx, p, s.cfg.TTL, nodeRenewals*s.cfg.TTL)
		switch {
		case errors.Is(err, registry.ErrCodeTaken):
			continue
		case err != nil:
			return err
		case stored.ID == p.ID:
			s.noteAsked(stored, source)
		}
		return &NodePending{
			ID: stored.ID, Code: stored.Code[:codeLength/2] + "-" + stored.Code[codeLength/2:],
			ExpiresIn: min(max(time.Until(stored.ExpiresAt), 0), s.cfg.TTL),
		}
	}
	return registry.ErrPairingsFull
}

// collectAsNode gives an approved node its credential.
func (s *Service) collectAsNode(
	ctx context.Context, r *http.Request, n Node, p registry.Pairing,
) (AdmittedNode, error) {
	credential := auth.NewCredentialID()
	if err := n.reserve(credentialOf(p, credential)); err != nil {
		return AdmittedNode{}, err
	}
	p, err := s.cfg.Store.CollectPairing(ctx, p.ID, credential, nodeGrace)
	if err == nil {
		err = s.stillTrusted(ctx, p)
	}
	if errors.Is(err, registry.CodeNotFound) {
		return AdmittedNode{}, registry.Errorf(registry.CodeBusy, "The approval is no longer valid. Connect again.")
	}
	if err != nil {
		return AdmittedNode{}, err
	}
	secret, err := s.issue(ctx, p, credential)
	if err != nil {
		return AdmittedNode{}, err
	}
	return s.withSecret(ctx, r, n, secret)
}

// giveAgain gives a node that was paired a moment ago another secret: it did not get the first one. A node whose
// credential does not exist asks again.
func (s *Service) giveAgain(
	ctx context.Context, r *http.Request, n Node, p registry.Pairing,
) (AdmittedNode, error) {
	c, err := s.cfg.Store.Credential(ctx, p.Decision.Tenant, p.Collected)
	if errors.Is(err, registry.CodeNotFound) {
		return AdmittedNode{}, s.pend(ctx, n, s.nodes.Sources.Network(r), nil)
	}
	if err != nil {
		return AdmittedNode{}, err
	}
	return s.newSecret(ctx, r, n, c, c.Digest)
}
