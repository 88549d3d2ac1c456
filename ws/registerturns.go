package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/farhand/farhand/internal/share"
)

// Checking a definition takes 0.1 ms for each name that it may be mistaken for, and listing what a session offers some
// milliseconds for a mebibyte. Devices take turns for both, by tenant and identity. While a turn lasts a schema may
// wait to be compiled, which has a pool of its own; no turn is waited for in the other order.

const (
	// turnLength is how long one frame may have its definitions checked while others wait. It is looked at between two
	// definitions.
	turnLength = 10 * time.Millisecond

	// turnWait is how long the definitions of one frame wait for turns, together. The rest of storeTimeout is for the
	// store.
	turnWait = storeTimeout / 2
)

// newRegisteringTurns returns the pool of turns. Each connection may wait for one.
func newRegisteringTurns(sockets int) *share.Pool {
	bounds := share.Turns(runtime.GOMAXPROCS(0))
	bounds.Waiting = 4 * int64(sockets) // half are one tenant's
	return share.New(bounds)
}

// inTurn runs admit for each definition, in turns that admit takes.
func (r *registration) inTurn(
	ctx context.Context, definitions []json.RawMessage, admit func(context.Context, json.RawMessage),
) {
	defer r.endTurn()
	for _, raw := range definitions {
		admit(ctx, raw)
	}
}

// takeTurn waits for a turn, unless the registration has one that is not too long yet.
func (r *registration) takeTurn(ctx context.Context) error {
	if r.turn != nil && time.Now().Before(r.turnUntil) {
		return nil
	}
	r.endTurn()
	ctx, cancel := context.WithDeadline(ctx, r.turnsEnd)
	defer cancel()
	turn, err := r.conn.server.turns.Acquire(ctx, r.who.Owner(), 1)
	if err != nil {
		return err
	}
	r.turn, r.turnUntil = turn, time.Now().Add(turnLength)
	return nil
}

func (r *registration) endTurn() {
	if r.turn != nil {
		r.turn.Release()
		r.turn = nil
	}
}

// listRegistered tells the device which tools it offers. A list may be a million times as long as the question, so its
// bytes have a budget, as those of definitions have.
func (c *conn) listRegistered(ctx context.Context, _ *getRegisteredToolsFrame) error {
	tools, size := c.local.Tools(), 0
	for _, t := range tools {
		size += t.Size()
	}
	if size > freeUnsent && c.server.unsent.Lacks(c.unsentOwner(), int64(size)) != "" {
		return errTooMuchUnsent // before the list is made
	}
	if !c.budget.takeListing(size) {
		return &frameError{codeRateLimited, fmt.Sprintf(
			"this session asked for its tools too often in too short a time; %d bytes a second are sent", registerRate)}
	}
	turn, err := c.server.turns.Acquire(ctx, c.who.Owner(), 1)
	if err != nil {
		return &frameError{codeRateLimited, "the gateway is too busy to list the tools; ask again after a moment"}
	}
	frame := registeredToolsFrame(tools)
	turn.Release()
	if err = c.out.push(frame); errors.Is(err, errOutboxesFull) {
		return errTooMuchUnsent
	}
	return sendError(err)
}

var errTooMuchUnsent = &frameError{codeRateLimited,
	"the devices of this pod, or of this tenant on it, have too much to read; ask again after a moment"}
