package mcp

import (
	"encoding/base64"
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// maxCursor bounds a cursor, in characters.
const maxCursor = 4096

// cursor is the place of the last tool of a page: in the order of connecting, and in a session by name. The gateway's
// own tools come first.
type cursor struct {
	Generation int64  `json:"g,omitempty"`
	Session    string `json:"s,omitempty"`
	Name       string `json:"n,omitempty"`
}

// String encodes the cursor for a client, as one opaque word.
func (c cursor) String() string {
	text, _ := json.Marshal(c) // cannot fail: strings and a number
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor accepts exactly what String returns.
func parseCursor(word string) (cursor, error) {
	var c cursor
	bad := invalidParams("The cursor is not one of this list. Send nextCursor of the page before as it is.")
	if len(word) > maxCursor {
		return c, bad
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil || json.Unmarshal(text, &c) != nil || c.String() != word || c == (cursor{}) || c.Generation < 0 {
		return cursor{}, bad
	}
	if c.Session != "" && (registry.Key{Tenant: registry.DefaultTenant, Session: c.Session}).Validate() != nil ||
		(c.Session == "") != (c.Generation == 0) {
		return cursor{}, bad
	}
	return c, nil
}

// afterSession returns the place of the directory that a list goes on from. Inside a session, that has to be read once
// more, so it goes on from just before it: the tilde sorts after all that an id may contain.
func (c cursor) afterSession() registry.Cursor {
	if c.Name != "" && c.Session != "" {
		return registry.Cursor{Generation: c.Generation - 1, Session: "~"}
	}
	return registry.Cursor{Generation: c.Generation, Session: c.Session}
}

// covers reports whether a tool of a session comes at or before the cursor.
func (c cursor) covers(s registry.Session, tool string) bool {
	switch {
	case s.Generation != c.Generation:
		return s.Generation < c.Generation
	case s.Key.Session != c.Session:
		return s.Key.Session < c.Session
	default:
		return c.Name == "" || tool <= c.Name
	}
}

// readCursor returns where a list goes on.
func (r *request) readCursor() (cursor, error) {
	v := r.params.get("cursor")
	if v.IsZero() || v.String() == "null" {
		return cursor{}, nil
	}
	word, ok := r.params.text("cursor")
	if !ok {
		return cursor{}, invalidParams("The field \"cursor\" must be a string.")
	}
	return parseCursor(word)
}
