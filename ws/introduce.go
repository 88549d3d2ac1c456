package ws

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/farhand/farhand/registry"
)

// Bounds of a resume token that a device presents. Tokens made here have 26 characters.
const (
	minResumeToken = 16
	maxResumeToken = 128
)

// introduce uses the first frame to learn which device this is, so whose calls it may answer, and which session it
// wants if the URL named none. It reports false if the connection has no session and is being closed.
func (c *conn) introduce(frame any) bool {
	if c.introduced {
		return true
	}
	c.introduced = true
	intro, connect := registry.Introduction{Holder: c.who.Holder()}, (*connectFrame)(nil)
	if f, ok := frame.(*connectFrame); ok {
		connect = f
		set(&intro.DeviceID, f.DeviceID)
		set(&intro.Token, f.ResumeToken)
		if err := c.mayBe(f); err != nil {
			c.refuseDevice(err)
			return false
		}
	}
	if c.who.Device != "" {
		intro.DeviceID = c.who.Device
	}
	if c.contest != nil && !c.decideContest(intro) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), introductionWait)
	defer cancel()
	if connect != nil && c.fresh && connect.SessionID != nil && *connect.SessionID != "" {
		if !c.moveSession(ctx, *connect.SessionID, intro) {
			return false
		}
	}
	if c.local.Introduce(intro) && connect == nil { // the handler of connect stores it otherwise
		if err := c.local.Update(ctx, func(*registry.Session) {}); err != nil {
			c.fail(err)
		}
	}
	return true
}

// moveSession gives the connection the session that connect names, in place of the one that was made for it. It reports
// false if the connection does not get that session, and is being closed.
func (c *conn) moveSession(ctx context.Context, id string, intro registry.Introduction) bool {
	made := c.local.Session()
	s := sessionOf(c.who, id)
	s.Name, s.Proofs = made.Name, made.Proofs
	if err := checkID(s.Key); err != nil {
		c.refuseSession(codeInvalidMessage, registry.AsError(err).Message)
		return false
	}
	hub := c.server.cfg.Pod.Hub
	local, resumed, err := hub.Open(ctx, s, c)
	if held := (*registry.Held)(nil); errors.As(err, &held) {
		introductions := make(chan registry.Introduction, 1)
		introductions <- intro
		resumed = true
		local, err = hub.Obtain(ctx, s, c, held, introductions)
	}
	if err != nil {
		c.failOpen(s, err)
		return false
	}
	former := c.local
	c.setLocal(local)
	former.Close(ctx)
	summary := summarize(s, c.describe(s.Key), resumed)
	c.summary = &summary
	return true
}

// newResumeToken makes a resume token for the connection, and the proof of it that is stored.
func (c *conn) newResumeToken() (token, proof string) {
	token = rand.Text()
	return token, registry.Proof(c.who.Holder(), token)
}
