package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// readAs reads a list page by page as a user, and returns the text of all pages and of their cursors, decoded.
func (k kept) readAs(user, path string) (rows, cursors string) {
	k.Helper()
	for next := path; next != ""; {
		r := k.send(request{path: next, header: as(user)})
		page := decode[struct {
			NextCursor string `json:"next_cursor"`
		}](r, 200)
		rows += string(r.body)
		next = ""
		if page.NextCursor != "" {
			text, err := base64.RawURLEncoding.DecodeString(page.NextCursor)
			k.must(err)
			cursors += string(text) + "\n"
			next = path + "&cursor=" + page.NextCursor
		}
	}
	return rows, cursors
}

// A cursor may have passed sessions that its reader may not see. It names none of them, and skips none of the reader's.
func TestCursorsNameNoHiddenSessions(t *testing.T) {
	k := newKept(t, setup{pods: 1}, people{})
	for i := range 60 {
		k.talk(fmt.Sprintf("of-ben-%d", i), registry.Owner{UserID: "ben"})
		if i%15 == 0 {
			k.talk(fmt.Sprintf("of-anna-%d", i), registry.Owner{UserID: "anna"})
		}
	}
	for _, limit := range []int{1, 2, 3, 4, 5} {
		rows, cursors := k.readAs("anna", fmt.Sprintf("/api/sessions?connected=false&limit=%d", limit))
		if strings.Contains(rows+cursors, "of-ben") {
			t.Errorf("limit %d: anna reads of %s", limit, cursors)
		}
		if n := strings.Count(rows, `"session_id":"of-anna-`); n != 4 {
			t.Errorf("limit %d: anna reads %d of her conversations", limit, n)
		}
	}
}
