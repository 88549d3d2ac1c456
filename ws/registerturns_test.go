package ws

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/internal/fields"
)

// unwritten is a connection whose frames wait.
type unwritten struct{ *conn }

func (unwritten) wakeWriter() {}

// openConn opens the session of an identity, whose device reads nothing.
func openConn(t *testing.T, s *Server, who auth.Identity, tools ...string) *conn {
	t.Helper()
	c := anotherConn(t, s, who)
	c.out.writer = unwritten{c}
	c.out.start([]byte("session_start"))
	var definitions []json.RawMessage
	for _, name := range tools {
		definitions = append(definitions, json.RawMessage(
			fmt.Sprintf(`{"name":%q,"description":%q}`, name, strings.Repeat("x", 1000))))
	}
	if err := c.registerTools(t.Context(), &registerToolsFrame{Tools: definitions}); err != nil {
		t.Fatal(err)
	}
	return c
}

// Devices of one tenant ask for lists and read none. Then they are refused more, and a device of another tenant gets
// its list.
func TestListingsAreShared(t *testing.T) {
	s := serverWithoutSockets(t, Config{MaxOutbound: MinOutbound, MaxUnsent: 1}, 8<<20)
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprint("tool", i)
	}
	list := func(c *conn) error { return c.listRegistered(t.Context(), &getRegisteredToolsFrame{}) }
	var err error
	var deaf []*conn
	for i := 0; err == nil && i < 20; i++ {
		who := auth.Identity{Tenant: "hostile", User: fmt.Sprint("u", i%3), Roles: auth.RoleDevice}
		c := openConn(t, s, who, names...)
		deaf, err = append(deaf, c), list(c)
	}
	var refused *fields.Error
	if !errors.As(err, &refused) || refused.Code != codeRateLimited ||
		!strings.Contains(refused.Message, "this tenant") {
		t.Errorf("a list that does not fit is refused with %v", err)
	}
	if held := s.unsent.Held("hostile"); held == 0 || held > s.cfg.MaxUnsent/2 {
		t.Errorf("a tenant holds %d of %d bytes", held, s.cfg.MaxUnsent)
	}
	other := openConn(t, s, auth.Identity{Tenant: "other", User: "u", Roles: auth.RoleDevice}, names...)
	if err := list(other); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	for _, c := range deaf {
		c.out.discard()
	}
	if held := s.unsent.Held("hostile"); held != 0 {
		t.Errorf("%d bytes are held of frames that nobody sends", held)
	}
}

// Devices of one tenant keep all turns busy that it can have. Its further ones wait, one of another tenant does not.
func TestRegistrationsAreShared(t *testing.T) {
	s := serverWithoutSockets(t, Config{}, 8<<20)
	hostile, other := auth.Identity{Tenant: "hostile", User: "u"}, auth.Identity{Tenant: "other", User: "u"}
	var turns []*share.Grant
	for {
		turn, err := s.turns.Try(hostile.Owner(), 1)
		if err != nil {
			break
		}
		turns = append(turns, turn)
	}
	c, registered := anotherConn(t, s, hostile), make(chan error, 1)
	c.out.writer = unwritten{c}
	c.out.start([]byte("session_start"))
	go func() {
		definition := json.RawMessage(`{"name":"t","description":"d"}`)
		registered <- c.registerTools(t.Context(), &registerToolsFrame{Tools: []json.RawMessage{definition}})
	}()
	testkit.Eventually(t, "a device of the same tenant waits", func() bool { return s.turns.Stats().Waiting == 1 })
	if d := openConn(t, s, other, "t"); len(d.local.Tools()) != 1 {
		t.Error("a device of another tenant registers nothing")
	}
	if len(c.local.Tools()) != 0 {
		t.Error("a device without a turn registers tools")
	}
	for _, turn := range turns {
		turn.Release()
	}
	if err := <-registered; err != nil || len(c.local.Tools()) != 1 {
		t.Errorf("after it had its turn: %v, %d tools", err, len(c.local.Tools()))
	}
	if held := s.turns.Stats().Held; held != 0 {
		t.Errorf("%d turns are still held", held)
	}
}
