package client

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
