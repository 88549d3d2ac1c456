package ws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// A device without a credential is told how to get one, where it may ask without a code: it is listed among those that
// wait for an approver, is sent what POST /pair answers, and is let go. So nobody holds a socket open for a stranger.

// pollInterval is how often a device should ask whether it is paired.
const pollInterval = 2 * time.Second

// errUnpaired is the error for a device without a credential that is to be paired.
var errUnpaired = errors.New("the device has no credential")

// pairsStrangers reports whether a request without a credential becomes a request to pair.
func (s *Server) pairsStrangers(r *http.Request) bool {
	return s.cfg.Pairing != nil && s.cfg.Pairing.Open() && websocket.IsWebSocketUpgrade(r)
}

// pairStranger has a device without a credential wait for an approver, and ends its connection.
func (s *Server) pairStranger(w http.ResponseWriter, r *http.Request, offer subprotocols, mcp bool) {
	query := r.URL.Query()
	device := query.Get("device_id")
	if mcp && device == "" {
		device = r.Header.Get(headerVoiceDevice)
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	asked, err := s.cfg.Pairing.Ask(ctx, pairing.Request{
		DeviceID: device, DeviceName: query.Get("name"), Platform: query.Get("platform"),
	}, s.cfg.Sources.Of(r))
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
	if mcp {
		frame = mcpPairingFrame(frame, r.Header.Get(headerVoiceDevice) != "")
	}
	err = conn.WriteMessage(websocket.TextMessage, frame)
	if err == nil {
		err = conn.WriteMessage(websocket.CloseMessage, ClosePairing.payload())
	}
	_ = conn.SetReadDeadline(time.Now().Add(lingerWait)) // what is not read would overtake the frames with a reset
	conn.SetReadLimit(lingerBuffer)
	for err == nil {
		_, _, err = conn.ReadMessage()
	}
}

// pairingFrame tells a device its code, in an error that old devices show to people, and what it asks again with.
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
