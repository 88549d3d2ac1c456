package client

import (
	"context"
	"errors"
	"time"
)

// SetForeground reports whether the device's app is in the foreground, now and on each later connection. Without a
// report the gateway does not know. In the background it refuses calls of tools whose Effects need the foreground, and
// it prefers a user's device in the foreground. It is safe for concurrent use.
func (c *Client) SetForeground(foreground bool) {
	c.registration.Lock() // keeps the order of reports, also on a new connection
	defer c.registration.Unlock()
	c.foreground = &foreground
	c.send(presenceFrame(foreground))
}

// SetDefault asks the gateway to make this device the default of its user: it gets calls for the user that could go to
// several devices. The device needs an id, and a token that names the user. SetDefault reports whether there is a
// connection; the gateway's answer is logged. It is safe for concurrent use.
func (c *Client) SetDefault() bool { return c.send(sent{Type: "set_default"}.encode()) }

func presenceFrame(foreground bool) []byte {
	return sent{Type: "presence", Foreground: &foreground}.encode()
}

// WakeOffer says how a gateway can wake devices.
type WakeOffer struct {
	Kinds          []string `json:"kinds"`            // such as "webhook"
	VAPIDPublicKey string   `json:"vapid_public_key"` // of Web Push, in base64url
}

// Wake says how the gateway wakes the device while it sleeps. docs/wake.md of the gateway describes the kinds and their
// fields.
type Wake struct {
	Kind          string    `json:"kind"`
	URL           string    `json:"url,omitempty"`      // webhook
	Endpoint      string    `json:"endpoint,omitempty"` // webpush, unifiedpush
	Keys          *WakeKeys `json:"keys,omitempty"`     // the same
	Token         string    `json:"token,omitempty"`    // fcm, apns
	Topic         string    `json:"topic,omitempty"`    // apns
	MinIntervalMS int64     `json:"min_interval_ms,omitempty"`
	Quiet         *Quiet    `json:"quiet,omitempty"`
}

// WakeKeys are the keys of a push subscription, in base64url.
type WakeKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// Quiet is the part of each day in which the device is not woken, such as from 22:00 to 07:00 in Europe/Vienna.
type Quiet struct {
	From string `json:"from"`
	To   string `json:"to"`
	Zone string `json:"zone,omitempty"` // empty: UTC
}

// WithWake sets a function that says how the device is woken while it sleeps. Run's goroutine calls it on each
// connection, with what the gateway offers. It must return quickly. If it returns nil, the gateway forgets how. The
// device needs an id: see WithDevice. The gateway's errors are logged.
func WithWake(f func(WakeOffer) *Wake) Option { return func(c *config) { c.wake = f } }

// registerWake answers what the gateway offers with connected. A gateway that wakes no devices offers nothing.
func (c *Client) registerWake(l *link, offer *WakeOffer) {
	if offer == nil || c.cfg.wake == nil {
		return
	}
	_ = l.send(sent{Type: "register_wake", Wake: c.cfg.wake(*offer)}.encode()) // an error also ends the reading
}

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
