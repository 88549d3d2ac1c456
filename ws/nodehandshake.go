package ws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node"
)

// A node of OpenClaw says who it is in its first frame, not in its upgrade request. So its socket is upgraded without
// an identity, and the first frame is read with bounds of its own: by bytes, by time, and by a pool in which one source
// address cannot take all places. A node that may connect then becomes an ordinary connection on the same socket: the
// request is upgraded once more, without a second response (hijack.go).
const (
	handshakeWait  = 15 * time.Second // from the upgrade to the frame connect, as OpenClaw's clients wait
	maxHandshakes  = 512              // sockets on which the frame connect is read; one source gets half
	handshakeBytes = node.MaxConnect + 4<<10
	handshakeRead  = 1 << 10         // bytes of the buffer for the frame
	handshakeRest  = 256 << 10       // bytes that are discarded after a refusal
	pendingWait    = 5 * time.Second // until a node asks again whether it is paired
	limitedWait    = time.Minute     // until a node of a source with too many wrong tokens tries again
)

// Nodes decides which OpenClaw nodes may connect. *pairing.Service implements it.
type Nodes interface {
	// AdmitNode returns the identity of a node that has proved to have its key. The error is a *pairing.NodePending if
	// its request to be paired waits for an approver, or an *registry.Error.
	AdmitNode(ctx context.Context, r *http.Request, n pairing.Node) (pairing.AdmittedNode, error)
}

// Node returns the handler for upgrades of OpenClaw nodes. It works like ServeHTTP.
func (s *Server) Node() http.Handler { return http.HandlerFunc(s.upgradeNode) }

func (s *Server) upgradeNode(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(podHeader, s.cfg.Pod.ID())
	if !s.tryAddTask() {
		s.refuse(w, draining())
		return
	}
	begin, ok := s.meetNode(w, r)
	if !ok {
		s.taskDone()
		return
	}
	s.serveUpgrade(w, r, begin)
}

// meetNode upgrades the request and reads who the node is. If ok is false, it has ended the socket.
func (s *Server) meetNode(w http.ResponseWriter, r *http.Request) (begin opening, ok bool) {
	if err := s.cfg.Origins.Check(r); err != nil {
		s.refuse(w, registry.AsError(s.cfg.Refusals.Origin(r, err)))
		return begin, false
	}
	place, err := s.takeHandshake(s.cfg.Sources.Network(r))
	if err != nil {
		s.cfg.Refusals.Note(r, auth.RefusedRate, err)
		s.refuse(w, registry.AsError(err))
		return begin, false
	}
	defer place.Release()
	socket := &handshakeSocket{}
	conn, err := s.handshakes.upgrader.Upgrade(&handshakeHijacker{w, socket}, r, w.Header())
	if err != nil { // the upgrader has answered
		s.log.Debug("handshake failed", "error", err)
		return begin, false
	}
	if !s.handshakes.track(socket) {
		endHandshake(conn, socket, nil, CloseRestart)
		return begin, false
	}
	hello, refusal := s.readHello(conn, socket)
	s.handshakes.untrack(socket)
	if refusal == nil {
		begin, refusal = s.admitNode(r, hello, place)
	}
	if refusal != nil {
		s.refuseNode(r, conn, socket, refusal)
		return begin, false
	}
	_ = socket.SetDeadline(time.Time{}) // the second upgrade sets what a connection needs
	begin.node.socket = socket
	return begin, true
}

// takeHandshake takes a place for the handshake of a source.
func (s *Server) takeHandshake(source netip.Prefix) (*share.Grant, error) {
	place, err := s.handshakes.places.Try(share.Owner{Tenant: source.String()}, 1)
	if err == nil && !s.handshakes.rates.Take(source, 1) {
		place.Release()
		err = errors.New("too often")
	}
	if err != nil {
		return nil, comeBack(registry.CodeBusy, "Too many nodes connect from this address. Reconnect in a moment.")
	}
	return place, nil
}

// readHello sends the challenge and reads the node's answer to it. A nil hello without a refusal does not occur.
func (s *Server) readHello(conn *websocket.Conn, socket *handshakeSocket) (*node.Hello, *node.Refusal) {
	now := time.Now()
	challenge := node.Challenge{Nonce: rand.Text(), At: now}
	_ = socket.SetReadDeadline(now.Add(min(handshakeWait, s.cfg.MessageTimeout)))
	_ = conn.SetWriteDeadline(now.Add(s.cfg.WriteTimeout))
	if err := conn.WriteMessage(websocket.TextMessage, challenge.Frame()); err != nil {
		return nil, node.Gone()
	}
	conn.SetReadLimit(node.MaxConnect)
	_, frame, err := conn.ReadMessage()
	switch timeout, _ := errors.AsType[net.Error](err); {
	case err == nil:
		return node.Handshake(frame, challenge, time.Now())
	case errors.Is(err, websocket.ErrReadLimit), errors.Is(err, errHandshakeTooBig):
		return nil, node.TooBig()
	case timeout != nil && timeout.Timeout() && s.isDraining():
		return nil, node.Restarting()
	case timeout != nil && timeout.Timeout():
		return nil, node.Late()
	default:
		return nil, node.Gone()
	}
}

// admitNode decides whether a node may connect, and reserves what its connection needs: before the node gets a secret,
// or each try at a full pod would make one.
func (s *Server) admitNode(
	r *http.Request, hello *node.Hello, place *share.Grant,
) (begin opening, refusal *node.Refusal) {
	// The store has its time for who the node is, for the session, after the wait for a turn, and then for a secret.
	ctx, cancel := context.WithTimeout(r.Context(), 3*storeTimeout+openingWait)
	defer cancel()
	reserve := func(id auth.Identity) (err error) {
		if begin.socket != nil { // reserved
			return nil
		}
		place.Release() // the handshake is over
		begin, err = s.reserveNode(r, hello, id)
		return err
	}
	defer func() {
		if refusal != nil && begin.socket != nil {
			begin.leave()
			begin = opening{}
		}
	}()
	admitted, err := s.identifyNode(ctx, r, hello, reserve)
	if err == nil && !admitted.Identity.Has(auth.RoleDevice) {
		refused := auth.NeedRole(admitted.Identity, auth.NameDevice)
		s.cfg.Refusals.Note(r, auth.RefusedRole, refused, slog.String("tenant", admitted.Identity.Tenant),
			slog.String("user", admitted.Identity.User))
		return begin, hello.RefuseToken(registry.AsError(refused).Message)
	}
	if err == nil {
		err = reserve(admitted.Identity)
	}
	if err != nil {
		return begin, s.refusalOf(r, hello, err)
	}
	begin.who, begin.node.token = s.shared(admitted.Identity), admitted.Token
	return begin, nil
}

// reserveNode reserves what the connection of a node with an identity needs. The caller releases it with leave.
func (s *Server) reserveNode(r *http.Request, hello *node.Hello, id auth.Identity) (opening, error) {
	begin := opening{source: s.cfg.Sources.Network(r), who: s.shared(id), plain: true}
	begin.readNode(hello)
	err := checkID(begin.session.Key)
	if err == nil {
		err = begin.session.ValidateAttributes()
	}
	if err == nil {
		err = s.checkOpenRate(r, begin.session.Key, begin.who, begin.source)
	}
	if err == nil {
		err = s.enter(r.Context(), &begin)
	}
	if err != nil {
		return opening{}, err
	}
	if begin.node.catalogs, err = s.holdCatalog(begin.who, hello); err != nil {
		begin.leave()
		return opening{}, err
	}
	return begin, nil
}

// identifyNode asks who a node is. Without pairing, only a token of the gateway tells that.
func (s *Server) identifyNode(
	ctx context.Context, r *http.Request, hello *node.Hello, reserve func(auth.Identity) error,
) (pairing.AdmittedNode, error) {
	if s.cfg.Nodes == nil {
		token := cmp.Or(hello.Token, hello.DeviceToken)
		if token == "" {
			return pairing.AdmittedNode{}, registry.Errorf(registry.CodeUnauthenticated,
				"This gateway pairs no nodes. Give the node a token with the role device.")
		}
		identity, err := s.cfg.Auth.Authenticate(ctx, r, token)
		return pairing.AdmittedNode{Identity: identity}, err
	}
	asked := pairing.Node{
		PublicKey: hello.PublicKey, DeviceID: hello.DeviceID, DeviceName: hello.DisplayName,
		Platform: hello.Node.Platform, Client: hello.ClientID + " " + hello.Version,
		DeviceToken: hello.DeviceToken, Token: hello.Token, BootstrapToken: hello.BootstrapToken,
		Reserve: reserve,
	}
	for _, t := range s.catalogs.of(hello.Node, nil).Tools() {
		asked.Tools = append(asked.Tools, t.Name)
	}
	return s.cfg.Nodes.AdmitNode(ctx, r, asked)
}

// refusalOf returns the answer to a node that may not connect.
func (s *Server) refusalOf(r *http.Request, hello *node.Hello, err error) *node.Refusal {
	if waits, ok := errors.AsType[*pairing.NodePending](err); ok {
		return hello.Pending(waits.ID, waits.Code, fmt.Sprintf(
			"pairing required: this node waits to be paired. An approver "+
				"approves the code %s within %v; the node then connects by itself.", waits.Code,
			waits.ExpiresIn.Round(time.Second)), pendingWait)
	}
	e := registry.AsError(err)
	refused, _ := errors.AsType[*pairing.NodeRefused](err)
	switch {
	case refused != nil:
		return refusalFor(refused.Reason, hello, e.Message)
	case e.Code == registry.CodeUnauthenticated && hello.Token == "":
		return hello.Refuse(e.Message, "AUTH_TOKEN_MISSING", "update_auth_configuration")
	case e.Code == registry.CodeUnauthenticated:
		return hello.RefuseToken(registry.AsError(s.cfg.Refusals.Token(r, hello.Token, err)).Message)
	case e.Code == registry.CodeForbidden:
		return hello.Refuse(e.Message, "AUTH_SCOPE_MISMATCH", "review_auth_configuration")
	case e.Code == registry.CodeInvalidRequest:
		return hello.Refuse(e.Message, "", "")
	}
	return refusalToOpen(hello, err)
}

// refusalToOpen returns the answer to a node whose session is not opened. A session of another device or user stays
// theirs until a person ends it, so the node stops. All other failures may pass.
func refusalToOpen(hello *node.Hello, err error) *node.Refusal {
	if errors.Is(err, registry.ErrHeldByAnother) || errors.Is(err, registry.CodeSessionNotFound) {
		return hello.Refuse("Another device or user has the session of this node, "+hello.DeviceID+". End that "+
			"session, then start the node again.", "AUTH_SCOPE_MISMATCH", "review_auth_configuration")
	}
	e := registry.AsError(err)
	return hello.Wait(e.Message, max(e.RetryAfter, time.Second))
}

// refusalFor returns the protocol's refusal for a reason. AUTH_RATE_LIMITED would stop a node for good, so one that may
// come back gets a time to wait.
func refusalFor(why pairing.NodeReason, hello *node.Hello, message string) *node.Refusal {
	switch why {
	case pairing.NodeDeviceToken:
		return hello.RefuseDeviceToken(message)
	case pairing.NodeToken, pairing.NodeOwnToken:
		return hello.RefuseToken(message)
	case pairing.NodeSetup:
		return hello.Refuse(message, "AUTH_BOOTSTRAP_TOKEN_INVALID", "update_auth_credentials")
	case pairing.NodeLimited:
		return hello.Wait(message, limitedWait)
	case pairing.NodeRejected:
		return hello.Refuse(message, "PAIRING_REQUIRED", "review_auth_configuration")
	case pairing.NodeUnknown:
		return hello.Refuse(message, "AUTH_TOKEN_MISSING", "update_auth_configuration")
	default:
		return hello.Refuse(message, "AUTH_SCOPE_MISMATCH", "review_auth_configuration")
	}
}

// refuseNode tells a client why it is no node here, and ends the socket.
func (s *Server) refuseNode(r *http.Request, conn *websocket.Conn, socket *handshakeSocket, refusal *node.Refusal) {
	s.counters.closed[CloseHandshake].Add(1)
	if refusal.Close == websocket.CloseServiceRestart {
		endHandshake(conn, socket, nil, CloseRestart)
		return
	}
	s.log.Debug("node refused", "reason", refusal.Error(), "detail", refusal.Detail(),
		"source", s.cfg.Sources.Network(r))
	endHandshake(conn, socket, refusal, CloseHandshake)
}

// endHandshake writes the refusal and a close frame, and closes the socket.
func endHandshake(conn *websocket.Conn, socket *handshakeSocket, refusal *node.Refusal, why Close) {
	defer conn.Close() //nolint:errcheck // it is over
	payload := nodeClosePayload(why)
	_ = conn.SetWriteDeadline(time.Now().Add(closeFrameWait))
	var err error
	if refusal != nil {
		payload = websocket.FormatCloseMessage(refusal.Close, refusal.Reason)
		if frame := refusal.Frame(); frame != nil {
			err = conn.WriteMessage(websocket.TextMessage, frame)
		}
	}
	if err == nil {
		err = conn.WriteMessage(websocket.CloseMessage, payload)
	}
	if err != nil && !errors.Is(err, websocket.ErrCloseSent) { // the library closes after a frame that is too big
		return
	}
	socket.linger() // unread input would cause a reset that overtakes the frames
	_, _ = io.CopyN(io.Discard, socket, handshakeRest)
}

// handshakeHijacker gives the upgrader a socket that reads no further than the first message.
type handshakeHijacker struct {
	http.ResponseWriter
	socket *handshakeSocket
}

// errHandshakeTooBig means that a node has sent more than a frame connect may have, also in small frames.
var errHandshakeTooBig = errors.New("ws: too many bytes before the first message")

// handshakeSocket is the socket of a node until its first message is complete. What follows stays unread: it belongs to
// the connection that the node becomes.
type handshakeSocket struct {
	net.Conn
	scanner frameScanner
	total   int
	done    bool   // the first message is complete
	lingers bool   // input is discarded
	unread  []byte // input after the first message
}

// Read implements net.Conn.
func (n *handshakeSocket) Read(p []byte) (int, error) {
	switch {
	case n.lingers:
		return n.Conn.Read(p)
	case n.done:
		return 0, io.EOF // there is no second message to read
	case n.total > handshakeBytes:
		return 0, errHandshakeTooBig
	}
	read, err := n.Conn.Read(p)
	n.total += read
	for i := range read {
		n.scanner.scan(p[i : i+1])
		if !n.scanner.busy() && n.scanner.first&controlBit == 0 {
			n.done, n.unread = true, bytes.Clone(p[i+1:read])
			return i + 1, nil
		}
	}
	return read, err
}

// linger lets the socket be read to its end, for a moment.
func (n *handshakeSocket) linger() {
	n.lingers = true
	if half, ok := n.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = n.Conn.SetReadDeadline(time.Now().Add(lingerWait))
}
