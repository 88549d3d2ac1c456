package ws

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const describeTimeout = time.Second // of the conversation, for which session_start waits

// onConnect claims the session and sends session_start. Melody calls it before it reads and writes. The first frame
// waits in melody's buffer, all others in the outbox.
func (s *Server) onConnect(ms *melody.Session) {
	c := connOf(ms)
	defer c.recoverPanic()
	c.session = ms
	ms.Request = nil // melody no longer needs it, and it would live as long as the socket
	c.wire.framed = true
	s.counters.opened.Add(1)
	begin := c.hijack.begin
	c.hijack = nil
	defer c.endOpening()
	if s.track(c) {
		c.end(CloseRestart)
		return
	}
	if s.cfg.Live != nil {
		c.unwatch = s.cfg.Live.Watch(c.who, c.endIdentity)
	}
	ms.WebsocketConnection().SetPingHandler(c.onPing)
	if c.mcp != nil {
		s.stacks.run(func() { c.openMCP(begin) })
		return
	}
	if c.node != nil {
		s.stacks.run(func() { c.openNode(begin) })
		return
	}
	s.stacks.run(func() { c.open(begin) })
}

func (c *conn) endIdentity(why error) {
	c.note(slog.LevelInfo, "device credential is no longer valid", "reason", registry.AsError(why).Message)
	c.end(CloseEnded)
}

// endOpening releases the turn, so that another session can be opened. It runs in the reader.
func (c *conn) endOpening() {
	c.turn.Release()
	c.turn = nil
}

// open claims the session and sends session_start. If another connection holds the session, a contest decides later.
func (c *conn) open(begin opening) {
	defer c.recoverPanic()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	token, proof := c.newResumeToken()
	begin.session.Proofs = []string{proof}
	c.fresh = begin.fresh
	local, resumed, err := c.server.cfg.Pod.Hub.Open(ctx, begin.session, c)
	if held, ok := errors.AsType[*registry.Held](err); ok {
		// The device may still be rejected. If it gets the session, connected describes the conversation.
		summary := sessionSummary{SessionID: begin.session.Key.Session, Resumed: true, Name: begin.session.Name}
		c.sendFirst(sessionStartFrame(token, summary, c.server.limits))
		c.startContest(begin.session, held)
		return
	}
	if err != nil {
		c.failOpen(begin.session, err)
		return
	}
	c.setLocal(local)
	var about registry.ConversationInfo
	if !c.fresh {
		about = c.describe(begin.session.Key)
	}
	c.sendFirst(sessionStartFrame(token, summarize(begin.session, about, resumed), c.server.limits))
	c.note(slog.LevelInfo, "device connected", "resumed", resumed, "messages", about.Messages)
}

// sendFirst writes the first frame, which opens the outbox.
func (c *conn) sendFirst(frame []byte) {
	if c.out.start(frame) {
		_ = c.session.Write(frame) // there is room for one frame, and melody's writer starts when onConnect returns
	}
}

// failOpen ends a connection that does not get its session.
func (c *conn) failOpen(s registry.Session, err error) {
	switch {
	case errors.Is(err, registry.ErrHeldByAnother):
		c.note(slog.LevelInfo, "session refused: it belongs to another connected device", "session", s.Key.Session)
		c.refuseSession(codeSessionOwnerMismatch, "The session "+s.Key.Session+" belongs to another connected "+
			"device. Use another session_id. The same device can present the session's resume_token.")
	case errors.Is(err, registry.CodeSessionNotFound):
		c.refuseSession(codeSessionOwnerMismatch, registry.AsError(err).Message)
	case errors.Is(err, registry.CodeStoreUnavailable), errors.Is(err, registry.CodeBusy),
		errors.Is(err, context.DeadlineExceeded): // it may get its session later
		c.note(slog.LevelWarn, "session not opened", "session", s.Key.Session, "error", err)
		c.end(CloseUnavailable)
	default:
		c.note(slog.LevelWarn, "session not opened", "session", s.Key.Session, "error", err)
		c.end(CloseInternal)
	}
}

// refuseSession rejects a device's claim to a session, and ends the connection.
func (c *conn) refuseSession(code, why string) {
	_ = c.send(errorFrame(code, why))
	c.end(CloseOwnerMismatch)
}

// Conversations describes conversations without reading their messages.
type Conversations interface {
	DescribeConversations(ctx context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error)
}

// describe returns the description of a session's conversation. It is empty if the lookup fails, because a device must
// be able to connect without its history.
func (c *conn) describe(key registry.Key) (about registry.ConversationInfo) {
	if c.server.cfg.Agent == nil || c.server.cfg.Conversations == nil {
		return about
	}
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	infos, err := c.server.cfg.Conversations.DescribeConversations(ctx, key)
	if err != nil || len(infos) != 1 {
		c.note(slog.LevelWarn, "conversation not looked up", "error", err)
		return about
	}
	return infos[0]
}

// summarize returns the summary of a session for its device. The name is the one that a person gave the conversation,
// the one in the device's URL, or the generated title of the conversation.
func summarize(s registry.Session, about registry.ConversationInfo, resumed bool) sessionSummary {
	name := s.Name
	if (about.Named || name == "") && !about.Owner.Foreign(s.UserID) {
		name = about.Title
	}
	return sessionSummary{
		SessionID: s.Key.Session, Resumed: resumed || about.Messages > 0, MessageCount: about.Messages, Name: name,
	}
}

// ServeHTTP answers GET /ws/chat. It upgrades a device's request, or rejects it with a problem document. It returns
// when the socket has been hijacked; Close waits for the connection's end.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.upgrade(w, r, false) }

// MCP returns the handler for GET /ws/mcp. It works like ServeHTTP, for devices that speak MCP.
func (s *Server) MCP() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.upgrade(w, r, true) })
}

// upgrade serves a device that speaks MCP, or the device protocol.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, speaksMCP bool) {
	w.Header().Set(podHeader, s.cfg.Pod.ID())
	if !s.tryAddTask() {
		s.refuse(w, draining())
		return
	}
	offer := readOffer(r)
	begin, err := s.admit(r, offer, speaksMCP)
	if err == nil {
		err = s.enter(r.Context(), &begin)
	}
	if err != nil {
		defer s.taskDone()
		if errors.Is(err, errUnpaired) {
			s.pairStranger(w, r, offer, speaksMCP)
			return
		}
		s.log.Debug("device refused", "error", err)
		s.refuse(w, registry.AsError(err))
		return
	}
	if offer.clawseed {
		w.Header().Set("Sec-Websocket-Protocol", subprotocol)
	}
	s.serveUpgrade(w, r, begin)
}

// opening holds what the upgrade request says about a connection.
type opening struct {
	session registry.Session
	who     *auth.Identity
	fresh   bool // the server made the session's id, so the session is new
	derived bool // the session's id is made of the ids of the device and its user
	plain   bool // people read tool results as plain text
	source  netip.Prefix
	mcp     *mcpDevice  // of a device that speaks MCP
	node    *nodeDevice // of an OpenClaw node; nil, like mcp: the device speaks the device protocol

	socket     *share.Grant // its place among the connections
	attributes attributes
	turn       *share.Grant // to open the session
}

// leave releases what the connection would have had.
func (o *opening) leave() {
	if o.node != nil {
		o.node.catalogs.release()
	}
	o.turn.Release()
	o.attributes.release()
	o.socket.Release()
}

// admit checks origin, token, role, attributes, and the source's rate of new sessions, in this order. It returns the
// session to open.
func (s *Server) admit(r *http.Request, offer subprotocols, speaksMCP bool) (opening, error) {
	if err := s.cfg.Origins.Check(r); err != nil {
		return opening{}, s.cfg.Refusals.Origin(r, err)
	}
	query := r.URL.Query()
	token := s.token(r, offer, query)
	identity, err := s.cfg.Auth.Authenticate(r.Context(), r, token)
	if token == "" && errors.Is(err, registry.CodeUnauthenticated) && s.pairsStrangers(r) {
		return opening{}, errUnpaired
	}
	if err != nil {
		return opening{}, s.cfg.Refusals.Token(r, token, err)
	}
	if !identity.Has(auth.RoleDevice) {
		refused := auth.NeedRole(identity, auth.NameDevice)
		// WebSocket clients rarely show more of this error than 403.
		s.cfg.Refusals.Note(r, auth.RefusedRole, refused, slog.String("tenant", identity.Tenant),
			slog.String("user", identity.User))
		return opening{}, refused
	}
	o := opening{source: s.cfg.Sources.Network(r), who: s.shared(identity)}
	// Copies, or the whole request line would live as long as the socket.
	o.session = sessionOf(o.who, strings.Clone(query.Get("session_id")))
	o.session.Name = strings.Clone(query.Get("name"))
	if speaksMCP {
		if err := o.readMCP(r, query); err != nil {
			return opening{}, err
		}
	}
	if o.session.Key.Session == "" {
		o.session.Key.Session, o.fresh = uuid.NewString(), true
	}
	if err := checkID(o.session.Key); err != nil {
		return opening{}, err
	}
	if o.plain, err = plainResults(query.Get("results")); err != nil {
		return opening{}, err
	}
	if err := o.session.ValidateAttributes(); err != nil {
		return opening{}, err
	}
	return o, s.checkOpenRate(r, o.session.Key, o.who, o.source)
}

func sessionOf(who *auth.Identity, id string) registry.Session {
	return registry.Session{
		Key: registry.Key{Tenant: who.Tenant, Session: id}, UserID: who.User, AnyOwner: who.OwnsAll(),
		DeviceID: who.Device, Bound: who.Device != "",
	}
}

// checkID checks the id of a session that is to be opened.
func checkID(key registry.Key) error {
	if key.Session == registry.ReservedSession {
		return registry.Errorf(registry.CodeInvalidRequest,
			"session_id: %q is reserved. Choose another one.", registry.ReservedSession)
	}
	return key.Validate()
}

// enter takes a place among the connections and memory for the attributes, waits for a turn to open the session, and
// checks the session's owner in the store. The connection made from o owns all of this. If enter fails, it releases it.
func (s *Server) enter(ctx context.Context, o *opening) (err error) {
	by := owner(o.who, int64(s.cfg.MaxSockets))
	if o.socket, err = s.sockets.Try(by, 1); err != nil {
		return tooManySockets(err)
	}
	defer func() {
		if err != nil {
			o.leave()
		}
	}()
	if o.attributes.hold(s, o.who, &o.session) != nil {
		return comeBack(registry.CodeBusy, tooManyAttributes)
	}
	if o.turn, err = s.waitToOpen(ctx, by); err != nil {
		return err
	}
	if o.fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err = s.cfg.Pod.Hub.CheckOwner(ctx, o.session)
	if o.derived && errors.Is(err, registry.CodeSessionNotFound) { // another user holds it
		o.session.Key.Session, o.fresh = uuid.NewString(), true
		return nil
	}
	return err
}

// plainResults decodes the format in which people at the device read tool results.
func plainResults(format string) (plain bool, err error) {
	switch chat.Format(format) {
	case "", chat.FormatPlain: // as ClawSeed's apps show them
		return true, nil
	case chat.FormatMarkdown:
		return false, nil
	default:
		return false, registry.Errorf(registry.CodeInvalidRequest, "results: must be %s or %s.",
			chat.FormatPlain, chat.FormatMarkdown)
	}
}

// token returns the first token found in header, subprotocol and query, in this order.
func (s *Server) token(r *http.Request, offer subprotocols, query url.Values) string {
	fromQuery := query.Get("token")
	if s.cfg.DenyQueryToken {
		fromQuery = ""
	}
	return cmp.Or(auth.BearerHeader(r), offer.token, fromQuery)
}

// subprotocols is the part of Sec-WebSocket-Protocol that the server uses. A browser cannot set headers, so it sends
// the token as a subprotocol. The server never echoes that one, because a response header must not contain a secret.
// The browser therefore also offers clawseed.v1: it drops a connection if the server chose none of the offered ones.
type subprotocols struct {
	clawseed bool
	token    string
}

func readOffer(r *http.Request) (offer subprotocols) {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			p = strings.TrimSpace(p)
			if p == subprotocol {
				offer.clawseed = true
			}
			if t, ok := strings.CutPrefix(p, "bearer."); ok && offer.token == "" {
				offer.token = t
			}
		}
	}
	return offer
}
