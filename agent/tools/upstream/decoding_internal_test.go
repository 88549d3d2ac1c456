package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/farhand/farhand/internal/share"
)

// longAnswer takes some 13 MB when it is decoded.
func longAnswer(id int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"a":[%s0]}}`, id, strings.Repeat("0,", 50_000))
}

// A tenant whose calls have long answers of many values holds half of the memory for them, whatever the server is. Its
// further ones wait and fail, those of another tenant are read, and what is read makes room.
func TestAnswersOfMCPServersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := share.New(share.Bounds{Pod: 60 << 20})
		connect := func(p *program) *connection {
			return &connection{
				decoding: pool, paces: newPaces(), asked: make(map[jsonrpc.ID]*attempt),
				first: new(attempt), program: p,
			}
		}
		web, prog := connect(nil), connect(new(program))
		id := 0
		answer := func(c *connection, tenant string) (bool, *attempt, error) {
			id++
			ctx, a := newAttempt(t.Context(), tenant)
			_, a.end = context.WithCancelCause(t.Context())
			from := &paced{ctx: ctx, pace: c.paces.forTenant(tenant), call: true}
			if c.program != nil {
				from.ctx = t.Context()
				call, err := jsonrpc.MakeID(float64(id))
				if err != nil {
					t.Fatal(err)
				}
				c.asks(&jsonrpc.Request{ID: call, Method: "tools/call"}, a)
			}
			pass, err := c.receive(longAnswer(id), from)
			return pass, a, err
		}
		var held []*attempt
		for _, c := range []*connection{web, prog} {
			pass, a, err := answer(c, "hostile")
			if !pass || err != nil {
				t.Fatalf("%v, %v", pass, err)
			}
			held = append(held, a)
		}
		if n := pool.Held("hostile"); n < 20<<20 || n > 30<<20 {
			t.Errorf("two answers hold %d bytes", n)
		}
		began := time.Now()
		if pass, _, err := answer(web, "hostile"); pass || !errors.Is(err, errCrowded) ||
			time.Since(began) != decodingWait {
			t.Errorf("a third one: %v, %v after %v", pass, err, time.Since(began))
		}
		if pass, _, err := answer(prog, "hostile"); pass || err != nil { // other calls of the program go on
			t.Errorf("a third one, of a program: %v, %v", pass, err)
		}
		for _, c := range []*connection{web, prog} {
			if pass, a, err := answer(c, "other"); !pass || err != nil {
				t.Errorf("of another tenant: %v, %v", pass, err)
			} else {
				c.finishAttempt(a)
			}
		}
		web.finishAttempt(held[0])
		prog.finishAttempt(held[1])
		if pass, a, err := answer(prog, "hostile"); !pass || err != nil {
			t.Errorf("when there is room: %v, %v", pass, err)
		} else {
			prog.finishAttempt(a)
		}
		if n := pool.Stats().Held; n != 0 || len(prog.asked) > 1 {
			t.Errorf("%d bytes are held, %d calls are remembered", n, len(prog.asked))
		}
		prog.first.answers.finish()
		if pass, err := prog.receive(longAnswer(999), &paced{ctx: t.Context(), pace: prog.paces.forTenant("")}); pass ||
			err != nil {
			t.Errorf("an answer to no call: %v, %v", pass, err)
		}
	})
}

// Before a session has begun, a server may send answers to what was not asked. They hold the memory of one.
func TestAnswersBeforeTheSession(t *testing.T) {
	pool := share.New(share.Bounds{Pod: 60 << 20})
	c := &connection{decoding: pool, paces: newPaces(), first: new(attempt)}
	from := &paced{ctx: t.Context(), pace: c.paces.forTenant("")}
	for id := range 4 {
		if pass, err := c.receive(longAnswer(id), from); !pass || err != nil {
			t.Fatalf("answer %d: %v, %v", id, pass, err)
		}
	}
	if n := pool.Held(""); n < 10<<20 || n > 15<<20 {
		t.Errorf("four answers hold %d bytes", n)
	}
	c.first.answers.finish()
	if n := pool.Held(""); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}
