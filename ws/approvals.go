package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/mcp"
)

// Pairing decides which ids and tools paired devices may use, and accepts pairing requests of others. *pairing.Service
// implements it.
type Pairing interface {
	// Open reports whether devices without a credential may connect to request pairing.
	Open() bool

	// Ask creates a pairing request, which waits for an approver.
	Ask(ctx context.Context, r pairing.Request, source netip.Prefix) (pairing.Asked, error)

	// Review decides which tools of a registration the device may offer, and stores the others for approvers.
	Review(ctx context.Context, id auth.Identity, tools []registry.ToolSpec) (pairing.Reviewed, error)

	// Approvals returns which tools of a device are approved, and which wait.
	Approvals(ctx context.Context, id auth.Identity) (pairing.Approvals, error)

	// Paired reports whether a device with this id is paired.
	Paired(ctx context.Context, tenant, deviceID string) (bool, error)
}

// isPaired reports whether the tools of the connection need approval.
func (c *conn) isPaired() bool { return c.server.cfg.Pairing != nil && pairing.IsPaired(*c.who) }

// review removes the tools that wait for approval from a paired device's registration. It returns the names of tools
// that the session offers with an earlier definition; these must be dropped.
func (r *registration) review(ctx context.Context) (drop []string, err error) {
	c := r.conn
	if len(r.put) == 0 || !c.isPaired() {
		return nil, nil
	}
	reviewed, err := c.server.cfg.Pairing.Review(ctx, *c.who, r.put)
	if err != nil {
		return nil, err
	}
	c.budget.spend(float64(reviewed.Bytes) / bytesPerUnit) // delays the next frame that needs the store
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

// withdraw counts a tool as no longer offered.
func (r *registration) withdraw(name string) {
	old := r.offered[name]
	r.sum.bytes -= old.bytes
	r.sum.compiled -= old.compiled
	delete(r.offered, name)
}

// offers reports whether the session offers a tool with this name.
func (c *conn) offers(name string) bool {
	return slices.ContainsFunc(c.local.Tools(), func(t registry.ToolSpec) bool { return t.Name == name })
}

// approvalTries is how often the approvals are looked up while the store is unavailable.
const approvalTries = 5

// offerApproved updates the connections of one paired device: they offer newly approved tools and drop tools that are
// no longer approved. It sends the device its number of tools.
func (s *Server) offerApproved(all []*conn) {
	for try := range approvalTries {
		all = slices.DeleteFunc(all, func(c *conn) bool { return c.ending() != closeNone })
		if len(all) == 0 {
			return
		}
		approvals, err := s.approvals(all[0])
		for _, c := range all {
			if err == nil {
				err = c.offerApproved(approvals)
			}
		}
		if err == nil {
			return
		}
		time.Sleep(time.Duration(try+1) * 200 * time.Millisecond) // at most 1 s, which the server's Close waits for
	}
}

func (s *Server) approvals(c *conn) (approvals pairing.Approvals, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return s.cfg.Pairing.Approvals(ctx, *c.who)
}

func (c *conn) offerApproved(approvals pairing.Approvals) (err error) {
	defer c.recoverPanic()
	c.registering.Lock()
	defer c.registering.Unlock()
	c.mu.Lock()
	local := c.local
	c.mu.Unlock()
	if local == nil {
		return nil // nothing is registered yet
	}
	if approved, withdrawn := approvals.Changes(local.Tools()); len(approved)+len(withdrawn) == 0 {
		return nil
	}
	newer, err := c.server.approvals(c) // the device may have registered more meanwhile
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	approved, withdrawn := newer.After(approvals).Changes(local.Tools())
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
	if _, err := c.server.cfg.Pairing.Review(ctx, *c.who, r.put); err != nil { // so that they no longer wait
		c.log().Debug("approved tools are still listed as waiting", "error", err)
	}
	return c.send(toolsRegisteredFrame(0, len(local.Tools()), r.rejected, nil))
}

// pairedConns indexes the connections of paired devices by their credentials. The zero value is empty. It is safe for
// concurrent use.
type pairedConns struct {
	mu      sync.Mutex
	by      map[pairedKey]map[*conn]struct{}
	changed map[string]map[pairedKey]struct{} // by tenant, while a goroutine handles the tenant's changes
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

// change records that a credential has changed. It returns true if no goroutine handles the changes of its tenant. The
// caller must then call next until it returns nil.
func (p *pairedConns) change(key pairedKey) (look bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.by[key]) == 0 {
		return false
	}
	if p.changed == nil {
		p.changed = make(map[string]map[pairedKey]struct{})
	}
	if look = p.changed[key.tenant] == nil; look {
		p.changed[key.tenant] = make(map[pairedKey]struct{})
	}
	p.changed[key.tenant][key] = struct{}{}
	return look
}

// next returns the connections of one changed credential of a tenant, nil if there is none.
func (p *pairedConns) next(tenant string) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.changed[tenant] {
		delete(p.changed[tenant], key)
		if len(p.by[key]) > 0 {
			return slices.Collect(maps.Keys(p.by[key]))
		}
	}
	delete(p.changed, tenant)
	return nil
}

// CredentialsChanged updates the tools of devices whose credentials have changed, and ends connections that claim the
// id of a newly paired device. It does not block. Devices of a tenant are handled one after another. Changes of one
// device that arrive meanwhile are merged.
func (s *Server) CredentialsChanged(changes []registry.CredentialChange) {
	s.devicesPaired(changes)
	for _, change := range changes {
		if change.Revoked || change.Kind != registry.ChangeCredential {
			continue
		}
		name := auth.CredentialName(registry.CredentialDevice, change.ID)
		if !s.paired.change(pairedKey{change.Tenant, name}) {
			continue
		}
		if !s.tryAddTask() {
			return
		}
		go func() {
			defer s.taskDone()
			for all := s.paired.next(change.Tenant); all != nil; all = s.paired.next(change.Tenant) {
				s.offerApproved(all)
			}
		}()
	}
}

// If pairing is open, a device without a credential gets a pairing request that waits for an approver. The gateway
// sends it what POST /pair answers, and closes the connection. So unknown devices hold no sockets open.

// pollInterval is how often a device should poll whether it is paired.
const pollInterval = 2 * time.Second

// errUnpaired is the error for a device without a credential that may request pairing.
var errUnpaired = errors.New("the device has no credential")

// pairsStrangers reports whether a request without a credential becomes a pairing request.
func (s *Server) pairsStrangers(r *http.Request) bool {
	return s.cfg.Pairing != nil && s.cfg.Pairing.Open() && websocket.IsWebSocketUpgrade(r)
}

// pairStranger creates a pairing request for a device without a credential, and ends its connection.
func (s *Server) pairStranger(w http.ResponseWriter, r *http.Request, offer subprotocols, speaksMCP bool) {
	query := r.URL.Query()
	device := query.Get("device_id")
	if speaksMCP && device == "" {
		device = r.Header.Get(headerVoiceDevice)
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	asked, err := s.cfg.Pairing.Ask(ctx, pairing.Request{
		DeviceID: device, DeviceName: query.Get("name"), Platform: query.Get("platform"),
	}, s.cfg.Sources.Network(r))
	if err != nil {
		s.refuse(w, registry.AsError(s.cfg.Refusals.Pairing(r, err)))
		return
	}
	var header http.Header
	if offer.clawseed {
		header = http.Header{"Sec-Websocket-Protocol": {subprotocol}}
	}
	conn, err := s.melody.Upgrader.Upgrade(w, r, header)
	if err != nil { // the upgrader has answered
		s.log.Debug("handshake failed", "error", err)
		return
	}
	defer conn.Close()
	s.counters.closed[ClosePairing].Add(1)
	_ = conn.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	frame := pairingFrame(asked)
	if speaksMCP {
		frame = mcp.PairingFrame(frame, r.Header.Get(headerVoiceDevice) != "")
	}
	err = conn.WriteMessage(websocket.TextMessage, frame)
	if err == nil {
		err = conn.WriteMessage(websocket.CloseMessage, ClosePairing.payload())
	}
	_ = conn.SetReadDeadline(time.Now().Add(lingerWait)) // unread input would cause a reset that overtakes the frames
	conn.SetReadLimit(lingerBuffer)
	for err == nil {
		_, _, err = conn.ReadMessage()
	}
}

// pairingFrame returns the device's code and what it needs to poll for its credential. It is an error frame because old
// devices show its message to people.
func pairingFrame(a pairing.Asked) []byte {
	type request struct {
		ID        string `json:"id"`
		Secret    string `json:"secret"`
		Code      string `json:"code"`
		DeviceID  string `json:"device_id"`
		ExpiresIn int    `json:"expires_in"` // seconds
		Interval  int    `json:"interval"`   // seconds
	}
	return encode(struct {
		Type    string  `json:"type"`
		Message string  `json:"message"`
		Code    string  `json:"code"`
		Pairing request `json:"pairing"`
	}{
		typeError, fmt.Sprintf("This device has no credential and waits to be paired. An approver approves the code "+
			"%s within %v; the device then asks POST /pair/status for its credential, and connects with it.", a.Code,
			a.ExpiresIn.Round(time.Second)),
		codePairingRequired,
		request{
			a.ID, a.Secret, a.Code, a.DeviceID, int(a.ExpiresIn.Seconds()), int(pollInterval.Seconds()),
		},
	})
}
