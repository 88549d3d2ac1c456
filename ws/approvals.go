package ws

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/pairing"
	"github.com/farhand/farhand/registry"
)

// Pairing says what paired devices may be and offer, and has others wait to be paired. *pairing.Service is one.
type Pairing interface {
	// Open reports whether devices may connect without a credential, to be paired.
	Open() bool

	// Ask has a device wait for an approver.
	Ask(ctx context.Context, r pairing.Request, source netip.Prefix) (pairing.Asked, error)

	// Review says which of the tools that a device registers it may offer, and keeps the others for approvers.
	Review(ctx context.Context, id auth.Identity, tools []registry.ToolSpec) (pairing.Reviewed, error)

	// Approved returns the tools that waited and were approved meanwhile, and the names of those that a device offers
	// and may not offer any longer.
	Approved(ctx context.Context, id auth.Identity, offered []registry.ToolSpec) (
		approved []registry.ToolSpec, withdrawn []string, err error)

	// Paired reports whether a device with an id is paired.
	Paired(ctx context.Context, tenant, deviceID string) (bool, error)
}

// isPaired reports whether the tools of the connection need approval.
func (c *conn) isPaired() bool { return c.server.cfg.Pairing != nil && pairing.IsPaired(*c.who) }

// review takes the tools that wait for approval out of a registration of a paired device. It returns the names of
// those that were offered with another definition: the device has that no longer.
func (r *registration) review(ctx context.Context) (drop []string, err error) {
	c := r.conn
	if len(r.put) == 0 || !c.isPaired() {
		return nil, nil
	}
	reviewed, err := c.server.cfg.Pairing.Review(ctx, *c.who, r.put)
	if err != nil {
		return nil, err
	}
	c.budget.spend(float64(reviewed.Bytes) / bytesPerUnit) // the next frame that has the store work waits for it
	for _, w := range reviewed.Waiting {
		r.put = slices.DeleteFunc(r.put, func(t registry.ToolSpec) bool { return t.Name == w.Name })
		r.withdraw(w.Name)
		if c.offers(w.Name) {
			drop = append(drop, w.Name)
		}
		r.reject(w.Name, w.Reason)
	}
	return drop, nil
}

// withdraw counts a tool as not offered.
func (r *registration) withdraw(name string) {
	old := r.offered[name]
	r.sum.bytes -= old.bytes
	r.sum.compiled -= old.compiled
	delete(r.offered, name)
}

// offers reports whether the session offers a tool of a name.
func (c *conn) offers(name string) bool {
	return slices.ContainsFunc(c.local.Tools(), func(t registry.ToolSpec) bool { return t.Name == name })
}

// approvalTries is how often what was approved is looked up while the store is away.
const approvalTries = 5

// offerApproved offers the tools of a paired device that were approved meanwhile, and stops offering those that no
// longer are. The device is told the number of its tools.
func (c *conn) offerApproved() {
	defer c.recoverPanic()
	for try := range approvalTries {
		if c.ending() != closeNone || c.tryOfferApproved() == nil {
			return
		}
		time.Sleep(time.Duration(try+1) * 200 * time.Millisecond) // the server's Close waits for a second or two of it
	}
}

func (c *conn) tryOfferApproved() error {
	c.registering.Lock()
	defer c.registering.Unlock()
	c.mu.Lock()
	local := c.local
	c.mu.Unlock()
	if local == nil {
		return nil // it has registered nothing
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	approvals := c.server.cfg.Pairing
	approved, withdrawn, err := approvals.Approved(ctx, *c.who, local.Tools())
	if err != nil || len(approved)+len(withdrawn) == 0 {
		return err
	}
	r := c.newRegistration(len(approved))
	definitions := make([]json.RawMessage, len(approved))
	for i, t := range approved {
		if definitions[i], err = json.Marshal(t); err != nil {
			return err
		}
	}
	r.inTurn(ctx, definitions, r.admitTool)
	for _, name := range withdrawn {
		r.withdraw(name)
	}
	if err := r.store(ctx, withdrawn); err != nil {
		c.fail(err)
		return nil
	}
	if _, err := approvals.Review(ctx, *c.who, r.put); err != nil { // they no longer wait
		c.log().Debug("approved tools are still listed as waiting", "error", err)
	}
	return c.send(toolsRegisteredFrame(0, len(local.Tools()), r.rejected, nil))
}

// pairedConns are the connections of paired devices, by their credentials. The zero value is empty. It is safe for
// concurrent use.
type pairedConns struct {
	mu sync.Mutex
	by map[pairedKey]map[*conn]struct{}
}

type pairedKey struct{ tenant, credential string }

func keyOfPaired(c *conn) pairedKey { return pairedKey{c.who.Tenant, c.who.Credential} }

func (p *pairedConns) add(c *conn) {
	if !c.isPaired() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := keyOfPaired(c)
	if p.by == nil {
		p.by = make(map[pairedKey]map[*conn]struct{})
	}
	if p.by[key] == nil {
		p.by[key] = make(map[*conn]struct{})
	}
	p.by[key][c] = struct{}{}
}

func (p *pairedConns) remove(c *conn) {
	if !c.isPaired() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := keyOfPaired(c)
	delete(p.by[key], c)
	if len(p.by[key]) == 0 {
		delete(p.by, key)
	}
}

func (p *pairedConns) of(tenant, credential string) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*conn
	for c := range p.by[pairedKey{tenant, credential}] {
		all = append(all, c)
	}
	return all
}

// CredentialsChanged has the devices of changed credentials offer what was approved, and ends the connections of those
// that say they are devices that were paired. It returns at once.
func (s *Server) CredentialsChanged(changes []registry.CredentialChange) {
	s.devicesPaired(changes)
	for _, change := range changes {
		if change.Revoked || change.Kind != registry.ChangeCredential {
			continue
		}
		name := auth.CredentialName(registry.CredentialDevice, change.ID)
		for _, c := range s.paired.of(change.Tenant, name) {
			if !s.tryAddTask() {
				return
			}
			go func() {
				defer s.taskDone()
				c.offerApproved()
			}()
		}
	}
}
