package client

import (
	"context"
	"errors"
	"time"
)

// RotateOptions are the options of Rotate. All are optional.
type RotateOptions struct {
	Store   Store         // stores the new credential before Rotate returns
	Overlap time.Duration // how long the former credential still works, at most 90 days; default 7 days
}

// Rotate gets a new credential in exchange for the one of WithCredential, stores it, and uses it for the connections
// that follow. The former credential works until the overlap ends, and then the connection that used it closes and is
// made again. If an answer of the gateway was lost, call Rotate again. A gateway without rotation refuses with the
// status 404. The error is ErrUnpaired without a credential, a *RefusedError, or one of the network or the store; after
// an error of the store, Rotate returns the credential, which the caller must store.
func (c *Client) Rotate(ctx context.Context, o RotateOptions) (Credential, error) {
	c.rotation.Lock()
	defer c.rotation.Unlock()
	now := c.credential.Load()
	if now == nil {
		return Credential{}, ErrUnpaired
	}
	body := map[string]any{}
	if o.Overlap > 0 {
		body["overlap"] = int64(max(o.Overlap, time.Second) / time.Second)
	}
	web := newWeb(c.url, c.cfg.tls)
	defer web.client.CloseIdleConnections()
	var answer struct {
		Credential string `json:"credential"`
	}
	if err := web.post(ctx, "/pair/rotate", *now, body, &answer); err != nil {
		return Credential{}, err
	}
	if answer.Credential == "" {
		return Credential{}, errors.New("client: the gateway returned no credential")
	}
	next := *now
	next.Token = answer.Credential
	c.credential.Store(&next)
	if o.Store != nil {
		return next, o.Store.Save(ctx, next)
	}
	return next, nil
}
