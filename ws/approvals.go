package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
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
	// Open reports whether devices without a credential may connect to request pairing. Ask creates such a request.
	Open() bool
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

// review removes the tools that wait for approval from a paired device's registration, also those that the session
// offers with an earlier definition.
func (r *registration) review(ctx context.Context) error {
	c := r.conn
	if len(r.put) == 0 || !c.isPaired() {
		return nil
	}
	reviewed, err := c.server.cfg.Pairing.Review(ctx, *c.who, r.put)
	if err != nil {
		return err
	}
	c.budget.spend(float64(reviewed.Bytes) / bytesPerUnit) // delays the next frame that needs the store
	for _, w := range reviewed.Waiting {
		r.put = slices.DeleteFunc(r.put, func(t registry.ToolSpec) bool { return t.Name == w.Name })
		r.withdraw(w.Name)
		r.reject(w.Name, w.Reason)
	}
	return nil
}

const approvalTries = 5 // while the store is unavailable

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
	local := c.claimed()
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
	if err := r.store(ctx); err != nil {
		c.fail(err)
		return nil
	}
	if _, err := c.server.cfg.Pairing.Review(ctx, *c.who, r.put); err != nil { // so that they no longer wait
		c.log().Debug("approved tools are still listed as waiting", "error", err)
	}
	return c.send(toolsRegisteredFrame(0, len(local.Tools()), r.rejected, nil))
}

// CredentialsChanged updates the tools of devices whose credentials have changed, and ends connections that claim the
// id of a newly paired device. It does not block. Devices of a tenant are handled one after another. Changes of one
// device that arrive meanwhile are merged.
func (s *Server) CredentialsChanged(changes []registry.CredentialChange) {
	s.devicesPaired(changes)
	for _, change := range changes {
		if change.Revoked || change.Kind != registry.ChangeCredential || s.cfg.Pairing == nil {
			continue
		}
		if s.noteChange(change.Tenant, auth.CredentialName(registry.CredentialDevice, change.ID)) {
			s.goTask(func() { s.offerChanged(change.Tenant) })
		}
	}
}

// pairedID names the credential of a paired device.
type pairedID struct{ tenant, credential string }

// noteChange records that a credential has changed, if a connection here has it. It returns true if it did, and no
// goroutine handles the changes of its tenant.
func (s *Server) noteChange(tenant, credential string) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paired[pairedID{tenant, credential}] == 0 {
		return false
	}
	if first = s.changed[tenant] == nil; first {
		s.changed[tenant] = make(map[string]bool)
	}
	s.changed[tenant][credential] = true
	return first
}

// takeChanges returns the changed credentials of a tenant, nil if there are none.
func (s *Server) takeChanges(tenant string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changed[tenant]
	if len(changed) == 0 {
		delete(s.changed, tenant)
		return nil
	}
	s.changed[tenant] = make(map[string]bool)
	return changed
}

// offerChanged updates the connections of a tenant's changed credentials, until no more have changed.
func (s *Server) offerChanged(tenant string) {
	for changed := s.takeChanges(tenant); changed != nil; changed = s.takeChanges(tenant) {
		conns := make(map[string][]*conn) // by credential
		for _, c := range s.snapshot() {
			if c.who.Tenant == tenant && changed[c.who.Credential] {
				conns[c.who.Credential] = append(conns[c.who.Credential], c)
			}
		}
		for _, all := range conns {
			s.offerApproved(all)
		}
	}
}

// If pairing is open, a device without a credential gets a pairing request that waits for an approver. The gateway
// sends it what POST /pair answers, and closes the connection. So unknown devices hold no sockets open.

const pollInterval = 2 * time.Second // of a device that waits to be paired

// errUnpaired is the error for a device without a credential that may request pairing.
var errUnpaired = errors.New("the device has no credential")

// pairsStrangers reports whether a request without a credential becomes a pairing request.
func (s *Server) pairsStrangers(r *http.Request) bool {
	return s.cfg.Pairing != nil && s.cfg.Pairing.Open() && websocket.IsWebSocketUpgrade(r)
}

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
