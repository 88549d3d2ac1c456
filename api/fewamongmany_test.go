package api_test

import (
	"fmt"
	"testing"

	"github.com/farhand/farhand/registry"
)

// pagesOf reads a list to its end, and returns the ids on it and how many pages it took.
func (k kept) pagesOf(path string) (all []string, pages int) {
	k.Helper()
	for next := ""; ; {
		list := decode[sessionList](k.get(path+next), 200)
		all = append(all, ids(list)...)
		if pages++; list.NextCursor == "" {
			return all, pages
		}
		if pages > 100 {
			k.Fatal("the list does not end")
		}
		next = "&cursor=" + list.NextCursor
		if path == "/api/sessions/running" {
			next = "?" + next[1:]
		}
	}
}

// A user with few conversations in a tenant with many gets all of them: on pages that may be empty and go on, so that
// no request reads the whole tenant.
func TestFewConversationsAmongMany(t *testing.T) {
	const many = 6000
	k := newKept(t, setup{pods: 1}, oneUser("anna"))
	k.begin("first", registry.Owner{UserID: "anna"})
	for i := range many {
		k.begin(fmt.Sprintf("b%d", i), registry.Owner{UserID: "ben"})
	}
	k.begin("last", registry.Owner{UserID: "anna"})
	all, pages := k.pagesOf("/api/sessions/running")
	equal(t, "running", all, []string{"first", "last"})
	if pages != 2 {
		t.Errorf("%d pages of what runs", pages)
	}
	all, pages = k.pagesOf("/api/sessions?limit=1000")
	if equal(t, "offline", all, []string{"last", "first"}); pages != 4 { // 20 times 100 rows are looked at for each
		t.Errorf("%d pages of conversations", pages)
	}
}
