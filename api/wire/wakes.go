package wire

// Wake says how a device is woken while it sleeps. Which fields are required depends on `kind`.
//
//schema:closed
type Wake struct {
	// Kind is the service that the push goes to. The gateway must have credentials for it.
	Kind string `json:"kind" schema:"enum=webhook|webpush|unifiedpush|fcm|apns"`

	URL      string    `json:"url,omitempty" schema:"maxLength=2048"`      // webhook: gets a signed request
	Endpoint string    `json:"endpoint,omitempty" schema:"maxLength=2048"` // webpush and unifiedpush: of the subscription
	Keys     *WakeKeys `json:"keys,omitempty"`                             // webpush and unifiedpush: of the subscription
	Token    string    `json:"token,omitempty" schema:"maxLength=4096"`    // fcm and apns: of the device
	Topic    string    `json:"topic,omitempty" schema:"maxLength=256"`     // apns: the bundle id of the app

	// MinIntervalMS is the minimum time between two pushes.
	MinIntervalMS int64       `json:"min_interval_ms,omitempty" schema:"minimum=1000,maximum=86400000,default=60000"`
	Quiet         *QuietHours `json:"quiet,omitempty"` // no pushes in this part of each day
}

// WakeKeys are the keys of a push subscription, in base64url.
//
//schema:closed
type WakeKeys struct {
	P256DH string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// QuietHours are a part of each day. `from` may be later than `to`: then they pass midnight.
//
//schema:closed
type QuietHours struct {
	From string `json:"from" schema:"pattern=^[0-2][0-9]:[0-5][0-9]$"`
	To   string `json:"to" schema:"pattern=^[0-2][0-9]:[0-5][0-9]$"`
	Zone string `json:"zone"` // of the IANA database, such as Europe/Vienna; empty: UTC
}

// DeviceWake is how a device is woken, without secrets, and when it was.
type DeviceWake struct {
	DeviceID      string      `json:"device_id"`
	Kind          string      `json:"kind"`
	Host          string      `json:"host,omitempty"`  // of the URL or endpoint
	Topic         string      `json:"topic,omitempty"` // apns: the bundle id of the app
	MinIntervalMS int64       `json:"min_interval_ms"`
	Quiet         *QuietHours `json:"quiet,omitempty"`
	RegisteredAt  Time        `json:"registered_at"`
	LastPush      Time        `json:"last_push,omitempty"`
	NextPush      Time        `json:"next_push,omitempty"` // planned
	Failures      int         `json:"failures,omitempty"`  // since the last push that the service took
	Error         string      `json:"error,omitempty"`     // of the last failure
}
