package ws_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/ws"
)

// Bytes of frames as a device writes them, masked with zeros.
const (
	opContinuation = 0x00
	opText         = 0x01
	opPing         = 0x09
	final          = 0x80
)

// rawFrame is a frame with a payload of at most 65535 bytes.
func rawFrame(first byte, payload string) []byte {
	head := []byte{first, 0x80 | 126, byte(len(payload) >> 8), byte(len(payload)), 0, 0, 0, 0}
	if len(payload) < 126 {
		head = []byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}
	}
	return append(head, payload...)
}

// raw writes bytes to the socket. A gateway that has had enough may close it meanwhile.
func (d *device) raw(b ...[]byte) {
	d.t.Helper()
	nc := d.conn.NetConn()
	must(d.t, nc.SetWriteDeadline(time.Now().Add(testTimeout)))
	all := net.Buffers(b)
	_, _ = all.WriteTo(nc)
}

// Every frame counts, whatever it is: a message in very many pieces is no cheaper than very many messages.
func TestEveryFrameCounts(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, flood := range map[string][]byte{
		"empty continuations": append(rawFrame(opText, ""), bytes.Repeat(rawFrame(opContinuation, ""), 30_000)...),
		"tiny continuations":  append(rawFrame(opText, ""), bytes.Repeat(rawFrame(opContinuation, "x"), 30_000)...),
		"pings in a message":  append(rawFrame(opText, ""), bytes.Repeat(rawFrame(final|opPing, ""), 30_000)...),
		"empty messages":      bytes.Repeat(rawFrame(final|opText, ""), 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := g.connect("flood-" + strings.ReplaceAll(name, " ", "-"))
			d.t = t
			go func() { // the gateway's answers are read meanwhile
				nc := d.conn.NetConn()
				_ = nc.SetWriteDeadline(time.Now().Add(testTimeout))
				_, _ = nc.Write(flood)
			}()
			d.expectClose(ws.CloseRate)
		})
	}
}

func TestAnUnfinishedMessageHasALimitOfTime(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.MessageTimeout, c.MaxFramesPerSecond, c.FrameBurst = 2*time.Second, 1e6, 1e6 // a busy machine stalls
	})
	for name, begin := range map[string][]byte{
		"half a header":    {final | opText},
		"half a frame":     rawFrame(final|opText, strings.Repeat("x", 1000))[:500],
		"half a message":   rawFrame(opText, `{"type":`),
		"half a ping":      rawFrame(final|opPing, "xxxx")[:8],
		"pings in between": append(rawFrame(opText, `{"type":`), rawFrame(final|opPing, "x")...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := g.connect("slow-" + strings.ReplaceAll(name, " ", "-"))
			d.t = t
			d.raw(begin)
			d.expectClose(ws.CloseMessageTimeout)
		})
	}
}

// A device that is never in the middle of a message for long stays connected, however long it goes on.
func TestUnfinishedMessagesOneAfterAnother(t *testing.T) {
	t.Parallel()
	const limit = 6 * time.Second // more than a busy machine stalls
	g := newGateway(t, func(c *ws.Config) { c.MessageTimeout = limit })
	d := g.connect("steady")
	whole := rawFrame(final|opText, `{"type":"abort"}`)
	d.raw(whole[:7])
	next := time.NewTicker(100 * time.Millisecond)
	defer next.Stop()
	for end := time.Now().Add(limit + limit/4); time.Now().Before(end); <-next.C {
		d.raw(whole[7:], whole[:7]) // the end of one and the beginning of the next
		d.expect("abort_ack")
	}
	d.raw(whole[7:])
	d.expect("abort_ack")
}

// The bytes of messages that are not complete are bounded on the pod. The connection with the oldest one makes room.
func TestUnfinishedBytesAreBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxUnfinished, c.MaxFrame = 160<<10, 40<<10 })
	part := rawFrame(opText, strings.Repeat(" ", 30<<10))
	holders := make([]*device, 5)
	for i := range holders {
		holders[i] = g.connect("holder-" + string(rune('a'+i)))
		holders[i].raw(part)
		must(t, holders[i].conn.SetReadDeadline(time.Now().Add(testTimeout)))
		holders[i].raw(rawFrame(final|opPing, "")) // answered once the part is read
		waitPong(t, holders[i])
	}
	honest := g.connect("honest")
	honest.raw(rawFrame(opText, strings.Repeat(" ", 20<<10)), rawFrame(opContinuation|final, `{"type":"abort"}`))
	honest.expect("abort_ack")
	holders[0].expectClose(ws.CloseCrowded)
	holders[2].raw(rawFrame(opContinuation|final, `{"type":"abort"}`))
	holders[2].expect("abort_ack")
	// What was handled is not held any more.
	for range 20 {
		honest.raw(rawFrame(final|opText, strings.Repeat(" ", 30<<10)+`{"type":"abort"}`))
		honest.expect("abort_ack")
	}
	holders[1].raw(rawFrame(opContinuation|final, `{"type":"abort"}`))
	holders[1].expect("abort_ack")
}

// tenantAuth takes every token for the name of its tenant.
type tenantAuth struct{}

func (tenantAuth) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	return auth.Identity{Tenant: token, Roles: auth.RoleDevice}, nil
}

// A tenant whose devices begin one long message after the other has its own devices closed, and not that of another
// tenant, whose message is the oldest because it comes slowly.
func TestOneTenantDoesNotCrowdOutAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.Auth, c.MaxUnfinished, c.MaxFrame = tenantAuth{}, 160<<10, 40<<10
	})
	begin := func(tenant, session string) *device {
		d := g.dialAs(tenant, query("session_id", session))
		d.expect("session_start")
		d.raw(rawFrame(opText, strings.Repeat(" ", 30<<10)))
		d.raw(rawFrame(final|opPing, "")) // answered once the part is read
		waitPong(t, d)
		return d
	}
	slow := begin("honest", "slow")
	var greedy []*device
	for i := range 4 {
		greedy = append(greedy, begin("greedy", fmt.Sprint("greedy-", i)))
	}
	last := g.dialAs("greedy", query("session_id", "last"))
	last.expect("session_start")
	last.raw(rawFrame(opText, strings.Repeat(" ", 30<<10)))
	greedy[0].expectClose(ws.CloseCrowded)
	slow.raw(rawFrame(opContinuation|final, `{"type":"abort"}`))
	slow.expect("abort_ack")
}

// Nor does it if its messages are complete, and wait to be decoded: then only the other one is in the middle of one.
func TestWaitingMessagesOfATenantDoNotCrowdOutAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.Auth, c.MaxUnfinished, c.MaxFrame = tenantAuth{}, 160<<10, 40<<10
	})
	release := ws.HoldDecoding(g.server)
	defer release()
	for i := range 4 {
		greedy := g.dialAs("greedy", query("session_id", fmt.Sprint("greedy-", i)))
		greedy.expect("session_start")
		greedy.raw(rawFrame(final|opText, frameOf(38<<10)))
	}
	eventually(t, "they wait", func() bool { return ws.UnhandledBytes(g.server) >= 4*38<<10 })
	slow := g.dialAs("honest", query("session_id", "slow"))
	slow.expect("session_start")
	slow.raw(rawFrame(opText, strings.Repeat(" ", 12<<10)))
	slow.raw(rawFrame(final|opPing, "")) // answered once the part is read
	waitPong(t, slow)
	slow.raw(rawFrame(opContinuation|final, `{"type":"abort"}`))
	slow.expect("abort_ack")
}

// waitPong reads the pong from the bare connection: nothing else is on its way.
func waitPong(t *testing.T, d *device) {
	t.Helper()
	pong := make([]byte, 2)
	nc := d.conn.NetConn()
	must(t, nc.SetReadDeadline(time.Now().Add(testTimeout)))
	if _, err := nc.Read(pong); err != nil || pong[0] != 0x8a {
		t.Fatalf("no pong: %x, %v", pong, err)
	}
}
