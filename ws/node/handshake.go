package node

import (
	"crypto/ed25519"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry/textsafe"
	"github.com/farhand/farhand/ws/internal/fields"
	"github.com/farhand/farhand/ws/node/commands"
)

// MaxSkew is how far the clock of a node may be from the gateway's. It is OpenClaw's limit.
const MaxSkew = 2 * time.Minute

// Challenge is what a gateway sends a node first. Nonce is new for each connection, so no signature works twice.
type Challenge struct {
	Nonce string
	At    time.Time
}

// Frame returns the event connect.challenge.
func (c Challenge) Frame() []byte {
	return event(eventChallenge, struct {
		Nonce string `json:"nonce"`
		TS    int64  `json:"ts"`
	}{c.Nonce, c.At.UnixMilli()})
}

// Hello is a node that has proved to have its key. All other content is what it says, and is not trusted.
type Hello struct {
	Request  string // id of its request, for the answer
	Protocol int

	PublicKey ed25519.PublicKey
	DeviceID  string // the SHA-256 of PublicKey, in lower-case hexadecimal

	ClientID, Version string // of its program
	DisplayName       string // one safe line for people; may be empty
	Node              commands.Node

	// What it presents: auth.token, auth.deviceToken and auth.bootstrapToken. Its signature covers one of them.
	Token, DeviceToken, BootstrapToken string
}

// Handshake decides about the first frame of a node. It returns either a Hello or a Refusal.
func Handshake(frame []byte, challenge Challenge, now time.Time) (*Hello, *Refusal) {
	c, bad := parseConnect(frame)
	if bad != nil {
		return nil, refuse(c.id, codeInvalidRequest, bad.Message, "")
	}
	if r := c.version(); r != nil {
		return nil, r
	}
	if c.role != roleNode {
		r := refuse(c.id, codeInvalidRequest, "invalid role: Farhand serves the role node only, not "+
			fields.Quote(textsafe.Line(c.role))+". Use the console, the HTTP API or the command farhand. See "+
			documentation+".", "")
		r.Reason = "invalid role"
		return nil, r
	}
	public, r := c.prove(challenge, now)
	if r != nil {
		return nil, r
	}
	return c.hello(public), nil
}

// version refuses a client whose versions of the protocol are not served.
func (c *connect) version() *Refusal {
	oldest := int64(ProtocolNewest)
	if c.isNode() {
		oldest = ProtocolOldest
	}
	if c.maxProtocol >= oldest && c.minProtocol <= ProtocolNewest && c.minProtocol <= c.maxProtocol {
		return nil
	}
	r := refuse(c.id, codeInvalidRequest, "protocol mismatch", "PROTOCOL_MISMATCH")
	r.details["clientMinProtocol"], r.details["clientMaxProtocol"] = c.minProtocol, c.maxProtocol
	r.details["expectedProtocol"], r.details["minimumProbeProtocol"] = ProtocolNewest, ProtocolOldest
	r.Close, r.Reason = closeProtocolError, "protocol mismatch"
	return r
}

func (c *connect) isNode() bool { return c.role == roleNode || c.client.mode == roleNode }

// prove checks that the node has the key of its id, and signed this connection's challenge just now.
func (c *connect) prove(challenge Challenge, now time.Time) (ed25519.PublicKey, *Refusal) {
	d := c.device
	if d == nil {
		return nil, refuse(c.id, codeNotPaired, "device identity required", "DEVICE_IDENTITY_REQUIRED")
	}
	public, id, ok := d.key()
	skew := now.Sub(time.UnixMilli(d.signedAt))
	switch {
	case !ok:
		return nil, c.unproved("device public key invalid", "DEVICE_AUTH_PUBLIC_KEY_INVALID")
	case d.id != id:
		return nil, c.unproved("device identity mismatch", "DEVICE_AUTH_DEVICE_ID_MISMATCH")
	case d.nonce == "":
		return nil, c.unproved("device nonce required", "DEVICE_AUTH_NONCE_REQUIRED")
	case d.nonce != challenge.Nonce:
		return nil, c.unproved("device nonce mismatch", "DEVICE_AUTH_NONCE_MISMATCH")
	case skew > MaxSkew || skew < -MaxSkew:
		return nil, c.unproved("device signature expired: the clocks of node and gateway differ by more than "+
			"2 minutes", "DEVICE_AUTH_SIGNATURE_EXPIRED")
	case !d.signs(public, c):
		return nil, c.unproved("device signature invalid", "DEVICE_AUTH_SIGNATURE_INVALID")
	}
	return public, nil
}

func (c *connect) unproved(message, detail string) *Refusal {
	return refuse(c.id, codeInvalidRequest, message, detail)
}

// hello returns what a connect frame says, with bounds and as copies: the frame is not kept.
func (c *connect) hello(public ed25519.PublicKey) *Hello {
	h := &Hello{
		Request: c.id, Protocol: ProtocolNewest, PublicKey: public, DeviceID: strings.Clone(c.device.id),
		ClientID: strings.Clone(c.client.id), Version: line(c.client.version), DisplayName: line(c.client.displayName),
		Node: commands.Node{
			Platform: line(c.client.platform), DeviceFamily: line(c.client.deviceFamily), Caps: c.caps,
			Commands: c.commands, Permissions: c.permissions,
		},
	}
	if c.maxProtocol < ProtocolNewest {
		h.Protocol = int(c.maxProtocol)
	}
	h.Token, h.DeviceToken = strings.Clone(c.auth.token), strings.Clone(c.auth.deviceToken)
	h.BootstrapToken = strings.Clone(c.auth.bootstrapToken)
	return h
}

// line returns a text for people as one short, safe line.
func line(s string) string { return strings.Clone(textsafe.Line(fields.Truncate(s, fields.MaxEcho))) }

// Refusal is the answer to a client that does not become a node.
type Refusal struct {
	Close  int    // code of the close frame
	Reason string // of the close frame

	request string
	code    string
	message string
	details map[string]any
	after   time.Duration // until the client may try again; zero: it must change something first
}

// refuse returns a refusal that closes with 1008 and the message. detail is what clients look at; empty: none.
func refuse(request, code, message, detail string) *Refusal {
	r := &Refusal{
		Close: closePolicyViolation, Reason: fields.Truncate(message, 120), request: request, code: code,
		message: message, details: make(map[string]any),
	}
	if detail != "" {
		r.details["code"] = detail
	}
	return r
}

// Refuse refuses a node that has shown who it is. detail is one of the protocol's ConnectErrorDetailCodes, and next one
// of its recommended next steps; both may be empty.
func (h *Hello) Refuse(message, detail, next string) *Refusal {
	code := codeInvalidRequest
	if detail == "PAIRING_REQUIRED" {
		code = codeNotPaired
	}
	r := refuse(h.Request, code, message, detail)
	if next != "" {
		r.details["recommendedNextStep"] = next
		r.details["canRetryWithDeviceToken"] = false
	}
	return r
}

// RefuseToken refuses the node's token. A client that has a device token too then tries that one, if it did not yet.
func (h *Hello) RefuseToken(message string) *Refusal {
	if h.DeviceToken != "" {
		return h.Refuse(message, "AUTH_TOKEN_MISMATCH", "update_auth_credentials")
	}
	r := h.Refuse(message, "AUTH_TOKEN_MISMATCH", "retry_with_device_token")
	r.details["canRetryWithDeviceToken"] = true
	return r
}

// RefuseDeviceToken refuses the node's own credential. Its client forgets it.
func (h *Hello) RefuseDeviceToken(message string) *Refusal {
	r := h.Refuse(message, "AUTH_DEVICE_TOKEN_MISMATCH", "update_auth_credentials")
	r.Reason = "device token mismatch"
	return r
}

// Wait refuses a node for now. Its client comes back by itself, not before the given time.
func (h *Hello) Wait(message string, after time.Duration) *Refusal {
	r := refuse(h.Request, codeUnavailable, message, "")
	r.after = max(after, time.Millisecond)
	return r
}

// Pending refuses a node whose request to be paired waits for an approver. Its client comes back by itself. By default
// it would stop, and a person would have to start it again after the approval. Clients of the older version know no
// hint against that: they stop for the code for machines, so they get none. Clients show people the reason of the close
// frame, and a text of their own instead of the message.
func (h *Hello) Pending(request, code, message string, after time.Duration) *Refusal {
	r := h.Refuse(message, "PAIRING_REQUIRED", "wait_then_retry")
	r.details["reason"], r.details["requestId"], r.details["deviceId"] = "not-paired", request, h.DeviceID
	r.details["requestedRole"], r.details["remediationHint"] = roleNode, message
	r.details["retryable"], r.details["pauseReconnect"] = true, false
	delete(r.details, "canRetryWithDeviceToken")
	if h.Protocol < ProtocolNewest {
		delete(r.details, "code")
	}
	r.after = max(after, time.Millisecond)
	r.Reason = "pairing required: approve the code " + code
	return r
}

// Detail returns the code for machines, empty if there is none.
func (r *Refusal) Detail() string {
	detail, _ := r.details["code"].(string)
	return detail
}

// Error implements error.
func (r *Refusal) Error() string { return r.message }

// Frame returns the answer to the client's request, nil if it sent none.
func (r *Refusal) Frame() []byte {
	if r.request == "" {
		return nil
	}
	e := failure{Code: r.code, Message: r.message, Retryable: r.after > 0, RetryAfterMS: r.after.Milliseconds()}
	if len(r.details) > 0 {
		e.Details = r.details
	}
	return failed(r.request, e)
}

// Welcome is what hello-ok says besides what is fixed.
type Welcome struct {
	Version     string // of the gateway
	Connection  string // id of the connection
	DeviceToken string // the node's new credential; empty: it has one
	MaxPayload  int64  // bytes of a frame
	MaxBuffered int64  // bytes queued for the node before it is closed as slow
	Tick        time.Duration
	Uptime      time.Duration
}

// Frame returns hello-ok, the answer to the node's request.
func (w Welcome) Frame(h *Hello) []byte {
	auth := map[string]any{"role": roleNode, "scopes": []string{}}
	if w.DeviceToken != "" {
		auth["deviceToken"] = w.DeviceToken
	}
	return succeeded(h.Request, map[string]any{
		"type": "hello-ok", "protocol": h.Protocol,
		"server": map[string]any{"version": w.Version, "connId": w.Connection},
		"features": map[string]any{
			"methods": []string{
				methodEvent, methodProgress, methodResult, methodPendingAck, methodPendingDrain, methodPendingPull,
				methodPluginTools,
			},
			"events": []string{eventChallenge, eventInvoke, eventCancel, eventShutdown, eventTick},
		},
		"snapshot": map[string]any{
			"presence": []any{}, "health": map[string]any{}, "uptimeMs": w.Uptime.Milliseconds(),
			"stateVersion": map[string]any{"presence": 0, "health": 0},
		},
		"auth": auth,
		"policy": map[string]any{
			"maxPayload": w.MaxPayload, "maxBufferedBytes": w.MaxBuffered, "tickIntervalMs": w.Tick.Milliseconds(),
		},
	})
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// failure is an error of the protocol.
type failure struct {
	Code         string         `json:"code"`
	Message      string         `json:"message"`
	Details      map[string]any `json:"details,omitempty"`
	Retryable    bool           `json:"retryable,omitempty"`
	RetryAfterMS int64          `json:"retryAfterMs,omitempty"`
}

// failed returns the answer to a request that failed.
func failed(request string, e failure) []byte {
	return encode(struct {
		Type  string  `json:"type"`
		ID    string  `json:"id"`
		OK    bool    `json:"ok"`
		Error failure `json:"error"`
	}{"res", request, false, e})
}

// succeeded returns the answer to a request.
func succeeded(request string, payload any) []byte {
	return encode(struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		OK      bool   `json:"ok"`
		Payload any    `json:"payload"`
	}{"res", request, true, payload})
}

// settled returns the frequent answers to a call's result and progress.
func settled(request string, ignored bool) []byte {
	b := make([]byte, 0, 80+len(request))
	b = append(b, `{"type":"res","id":`...)
	b = strictjson.AppendString(b, request)
	b = append(b, `,"ok":true,"payload":{"ok":true`...)
	if ignored {
		b = append(b, `,"ignored":true`...)
	}
	return append(b, `}}`...)
}

func event(name string, payload any) []byte {
	return encode(struct {
		Type    string `json:"type"`
		Event   string `json:"event"`
		Payload any    `json:"payload"`
	}{"event", name, payload})
}

// encode returns the JSON of a frame. All frames can be encoded, so a failure is a bug, whose panic ends only the
// connection on which it happens.
func encode(frame any) []byte {
	text, err := json.Marshal(frame)
	if err != nil {
		panic(err)
	}
	return text
}

// Refusals before there is a frame to answer.

// Late refuses a client that did not send connect in time.
func Late() *Refusal {
	return &Refusal{Close: closePolicyViolation, Reason: "connect timeout", message: "no connect"}
}

// TooBig refuses a client whose first frame is too big.
func TooBig() *Refusal {
	return &Refusal{Close: closeTooBig, Reason: "connect is too big", message: "the first frame is too big"}
}

// Restarting refuses a client because the pod stops.
func Restarting() *Refusal {
	return &Refusal{Close: closeRestart, Reason: "service restart", message: "the pod stops"}
}

// Gone refuses a client that has gone, or whose socket failed.
func Gone() *Refusal {
	return &Refusal{Close: closePolicyViolation, Reason: "gone", message: "the client has gone"}
}
