package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// serveStream begins an answer of server-sent events and calls fill to write it. The context of fill ends when the
// client disconnects or the pod begins to drain.
func (h *handler) serveStream(c *gin.Context, fill func(context.Context, *ssewriter.Stream) error) {
	s, err := ssewriter.Open(c)
	if err != nil || c.Request.Method == http.MethodHead {
		return
	}
	defer s.Close()
	ctx, stop := h.untilDraining(c.Request.Context())
	defer stop()
	if err := fill(ctx, s); err != nil && ctx.Err() == nil {
		h.Log.Debug("event stream cut off", "route", c.FullPath(), "error", err)
	}
}

// lastEventID returns the id of the last event that a client has received, or "" for a new client. A reconnecting
// browser sends the header in addition to the query string of its first request, so the header is newer.
func lastEventID(c *gin.Context, q *params) (string, error) {
	id := cmp.Or(c.GetHeader("Last-Event-ID"), q.get("last_event_id"))
	if id == "" {
		return "", nil
	}
	return id, registry.CheckFeedID(id)
}

// await waits until a channel is closed, atMost has passed, or ctx ends.
func await(ctx context.Context, closed <-chan struct{}, atMost time.Duration) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Browsers cannot send headers with an EventSource, and a token must not be in a URL. So a page gets a ticket with its
// token, and opens one event stream with the ticket.

const (
	pathTickets = "/api/events/tickets"

	ticketLife  = 30 * time.Second
	ticketQuery = "ticket"
	maxTicket   = 8 << 10 // bytes
)

// ticket is the content of a ticket. It is not secret: the store has the whole ticket and gives it out once, so tickets
// cannot be forged or changed.
type ticket struct {
	Once    string    `json:"once"` // differs each time
	Path    string    `json:"path"` // of the stream
	Tenant  string    `json:"tenant"`
	User    string    `json:"user,omitempty"`
	Name    string    `json:"name,omitempty"`
	Note    string    `json:"note"` // auth.Identity.Note
	Issued  time.Time `json:"issued,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

func (t ticket) identity() auth.Identity {
	who := auth.OfNote(t.Tenant, t.User, t.Note)
	who.Name, who.Issued, who.Expires = t.Name, t.Issued, t.Expires
	return who
}

// owner names the tickets of one identity: the store keeps up to registry.MaxNonces of each owner.
func (t ticket) owner() string {
	who, _ := json.Marshal([]string{t.User, t.Note}) // cannot fail, nor can the digest of valid JSON
	digest, _ := strictjson.Digest(json.RawMessage(`{}`), who)
	return "ticket/" + digest
}

// isEventStream reports whether a path serves an event stream.
func isEventStream(path string) bool {
	call, ok := strings.CutPrefix(path, pathCalls+"/")
	id, ok2 := strings.CutSuffix(call, "/events")
	return path == "/api/events" || ok && ok2 && id != "" && !strings.Contains(id, "/")
}

func (h *handler) makeTicket(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err != nil {
		return err
	}
	t := ticket{Once: rand.Text(), Path: "/api/events"}
	if len(body) > 0 {
		r, err := readStrict[wire.TicketRequest](body, nil)
		if err != nil {
			return err
		}
		t.Path = cmp.Or(r.said.Path, t.Path)
	}
	if !isEventStream(t.Path) {
		return wrongType("path", `"/api/events" or "/api/calls/{id}/events"`)
	}
	if h.States == nil {
		return registry.Errorf(registry.CodeNotFound, "This gateway does not issue tickets.")
	}
	who := caller(c)
	t.Tenant, t.User, t.Name, t.Note = who.Tenant, who.User, who.Name, who.Note()
	t.Issued, t.Expires = who.Issued, who.Expires
	text, err := h.storeTicket(c.Request.Context(), t)
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusCreated, wire.EventTicket{
		Ticket: text, URL: t.Path + "?" + ticketQuery + "=" + text, ExpiresIn: int(ticketLife.Seconds()),
	})
}

func (h *handler) storeTicket(ctx context.Context, t ticket) (string, error) {
	b, err := json.Marshal(t)
	if err != nil { // a year beyond 9999
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(b)
	if len(text) > maxTicket {
		return "", registry.Errorf(registry.CodeInvalidRequest, "The credential is too long for a ticket.")
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return text, h.States.PutNonce(ctx, t.Tenant, t.owner(), text, ticketLife)
}

// ticketOf returns the ticket of a request for a stream, or "" if it has none. A ticket is ignored if there is a token.
func ticketOf(r *http.Request) string {
	if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || !isEventStream(r.URL.Path) {
		return ""
	}
	return r.URL.Query().Get(ticketQuery)
}

// takeTicket redeems a ticket for a path, once, and returns its identity.
func (h *handler) takeTicket(ctx context.Context, text, path string) (auth.Identity, error) {
	var t ticket
	if len(text) > maxTicket {
		return auth.Identity{}, errTicket()
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(b, &t) != nil || t.Path != path {
		return auth.Identity{}, errTicket()
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	known, err := h.States.TakeNonce(ctx, t.Tenant, t.owner(), text)
	if err != nil {
		return auth.Identity{}, err
	}
	who := t.identity()
	if !known || who.Expired(time.Now()) {
		return auth.Identity{}, errTicket()
	}
	if h.Live != nil { // the identity may have been revoked since the ticket was made
		if err := h.Live.Verify(ctx, &who); err != nil {
			return auth.Identity{}, err
		}
	}
	return who, nil
}

func errTicket() error {
	return registry.Errorf(registry.CodeUnauthenticated,
		"This ticket is not valid for this stream: it was used or has expired. Get another with POST %s.", pathTickets)
}
