package ws

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// bearerProtocol is how a browser, which cannot set headers, carries a token in its offered subprotocols.
const bearerProtocol = "bearer."

// ServeHTTP answers GET /ws/chat: it upgrades a device's request, or refuses it with a problem document. It returns
// when the socket has been hijacked; Close waits for the connection's end.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.upgrade(w, r, false) }

// MCP returns what answers GET /ws/mcp: as ServeHTTP, for devices that speak MCP.
func (s *Server) MCP() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.upgrade(w, r, true) })
}

// upgrade is ServeHTTP for a device that speaks the device protocol or, if it is set, MCP.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, mcp bool) {
	w.Header().Set(podHeader, s.cfg.Pod.ID())
	if !s.tryAddTask() {
		s.refuse(w, draining())
		return
	}
	offer := readOffer(r)
	begin, err := s.admit(r, offer, mcp)
	if err == nil {
		err = s.enter(r.Context(), &begin)
	}
	if errors.Is(err, errUnpaired) {
		defer s.taskDone()
		s.pairStranger(w, r, offer, mcp)
		return
	}
	if err != nil {
		s.log.Debug("device refused", "error", err)
		s.refuse(w, registry.AsError(err))
		s.taskDone()
		return
	}
	if offer.clawseed {
		w.Header().Set("Sec-Websocket-Protocol", subprotocol)
	}
	s.serveUpgrade(w, r, begin)
}

// opening is what the upgrade request says about a connection.
type opening struct {
	session registry.Session
	who     *auth.Identity
	fresh   bool // the session's id was made here: nobody can have used it before
	plain   bool // people read results of tools as plain text
	source  netip.Prefix
	mcp     *mcpLink // nil: the device speaks the device protocol

	socket *share.Grant // its place among the connections
	turn   *share.Grant // to open the session
}

// admit checks origin, token, role, attributes, and how fast the source opens sessions, in this order. It returns what
// to open.
func (s *Server) admit(r *http.Request, offer subprotocols, mcp bool) (opening, error) {
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
		// A client of WebSocket rarely shows more of it than 403.
		s.cfg.Refusals.Note(r, auth.RefusedRole, refused, slog.String("tenant", identity.Tenant),
			slog.String("user", identity.User))
		return opening{}, refused
	}
	o := opening{source: s.cfg.Sources.Of(r), who: s.shared(identity)}
	// Copies, or the whole request line would live as long as the socket.
	o.session = sessionOf(o.who, strings.Clone(query.Get("session_id")))
	o.session.Name = strings.Clone(query.Get("name"))
	if mcp {
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
	return o, s.checkOpenRate(r, o.session.Key, o.source)
}

// sessionOf returns a session with what is known of it from the credentials of its device.
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
			"session_id: no session can be called %q. Choose another one.", registry.ReservedSession)
	}
	return key.Validate()
}

// enter takes a place among the connections, waits for its turn to open the session, and then asks the store who owns
// it. What it takes belongs to the connection that is made of o; it keeps nothing if it fails.
func (s *Server) enter(ctx context.Context, o *opening) (err error) {
	by := s.ownerOf(o.who)
	if o.socket, err = s.sockets.Try(by, 1); err != nil {
		return tooManySockets(err)
	}
	if o.turn, err = s.waitToOpen(ctx, by); err != nil {
		o.socket.Release()
		return err
	}
	if o.fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err = s.cfg.Pod.Hub.CheckOwner(ctx, o.session); err != nil {
		o.turn.Release()
		o.socket.Release()
	}
	return err
}

// plainResults decodes the format in which people at the device read results of tools.
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

// token returns the first token of header, subprotocol and query, in this order.
func (s *Server) token(r *http.Request, offer subprotocols, query url.Values) string {
	if t := auth.BearerHeader(r); t != "" {
		return t
	}
	if offer.token != "" {
		return offer.token
	}
	if s.cfg.DenyQueryToken {
		return ""
	}
	return query.Get("token")
}

// subprotocols is what matters of Sec-WebSocket-Protocol. The subprotocol that carries the token is never echoed,
// because a response header is no place for a secret. A browser therefore offers clawseed.v1 too: it drops a connection
// whose server chose none of the protocols it offered.
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
			if t, ok := strings.CutPrefix(p, bearerProtocol); ok && offer.token == "" {
				offer.token = t
			}
		}
	}
	return offer
}
