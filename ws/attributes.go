package ws

import (
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// What the attributes of a session cost is in the memory of the pod and, with an index of each label, in the store. At
// their limits they cost more than the rest of the connection, so those beyond attributesFree share a pool. It has
// attributesMean for each connection that the pod may have.
const (
	attributesFree = 2 << 10
	attributesMean = 4 << 10

	labelCost      = 256 // bytes of a label besides its text
	capabilityCost = 16  // the same of a capability
)

// newAttributes returns the pool of attributes, which has the shares of the pool of connections.
func newAttributes(sockets int) *share.Pool { return newSockets(sockets * attributesMean) }

func attributeBytes(s *registry.Session) int64 {
	n := len(s.Name) + len(s.DeviceID) + len(s.DeviceName) + len(s.Platform)
	for k, v := range s.Labels {
		n += len(k) + len(v) + labelCost
	}
	for _, c := range s.Capabilities {
		n += len(c) + capabilityCost
	}
	return int64(n)
}

// attributes are what a connection holds of the pool. The zero value holds nothing. It is not safe for concurrent use.
type attributes struct {
	bytes  int64 // held, and attributesFree
	grants []*share.Grant
}

// hold takes what the attributes of a session need beyond what is held. It gives nothing back: what a device has had it
// may have again. The error is a *share.FullError.
func (a *attributes) hold(s *Server, who *auth.Identity, session *registry.Session) error {
	need := attributeBytes(session)
	more := need - max(a.bytes, attributesFree)
	if more <= 0 {
		return nil
	}
	grant, err := s.attributes.Try(owner(who, int64(s.cfg.MaxSockets)*attributesMean), more)
	if err != nil {
		return err
	}
	a.bytes, a.grants = need, append(a.grants, grant)
	return nil
}

func (a *attributes) release() {
	for _, g := range a.grants {
		g.Release()
	}
	a.grants = nil
}

// holdAttributes checks and holds the attributes that a session is about to get.
func (c *conn) holdAttributes(change func(*registry.Session)) error {
	s := c.local.Session()
	change(&s)
	if err := s.ValidateAttributes(); err != nil {
		return err
	}
	if c.attributes.hold(c.server, c.who, &s) != nil {
		return fields.NewError(codeRateLimited, tooManyAttributes+" Nothing was changed.")
	}
	return nil
}

const tooManyAttributes = "labels, capabilities: the devices of this identity or tenant have too many on this pod. " +
	"Use fewer or shorter ones."
