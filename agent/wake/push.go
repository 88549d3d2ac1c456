package wake

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"
	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/webhook"
	"github.com/farhand/farhand/registry"
)

// Outcome is what became of a push.
type Outcome string

// The outcomes.
const (
	Sent    Outcome = "sent"    // the push service took it
	Gone    Outcome = "gone"    // the push service no longer knows the device: the registration is forgotten
	Retry   Outcome = "retry"   // the push service failed, or is busy: the push is sent again
	Refused Outcome = "refused" // the push service did not accept it, and would not accept it again
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{Sent, Gone, Retry, Refused} }

// result is the outcome of a push.
type result struct {
	outcome    Outcome
	reason     string        // of an outcome that is not sent, for the device's user; nothing of this network
	cause      error         // of a reason that says less, for the log of the operator
	retryAfter time.Duration // that the push service asked for
}

// message is the content of a push.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	DeviceID  string    `json:"device_id"`

	// Only with Settings.Content.
	Calls int      `json:"calls,omitempty"` // that wait
	Tools []string `json:"tools,omitempty"` // of these, each once
}

const (
	messageType = "device.wake"

	// pushLife is how long a push service keeps a push for a device that is off. A newer one replaces it.
	pushLife = 24 * time.Hour

	collapse = "farhand-wake" // names pushes that replace each other

	// alertText is what a phone shows if the app does not write a text of its own.
	alertText = "An agent needs this device. Tap to answer."
)

// pusher sends a push to a device.
type pusher interface {
	push(ctx context.Context, w registry.Wake, m message) result
}

const maxAnswer = 64 << 10 // bytes of a push service's answer that are read

// do sends a request and reads its answer. The result is that of the status alone: gone for those in goneStatus.
func do(client *http.Client, req *http.Request, goneStatus ...int) (result, []byte) {
	resp, err := client.Do(req)
	if err != nil {
		return failure(err), nil
	}
	return read(resp, goneStatus...)
}

// read reads an answer, and closes its body.
func read(resp *http.Response, goneStatus ...int) (result, []byte) {
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	res := result{outcome: Refused, reason: fmt.Sprintf("status %d", resp.StatusCode)}
	switch status := resp.StatusCode; {
	case status >= http.StatusOK && status < http.StatusMultipleChoices:
		return result{outcome: Sent}, body
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		res.outcome, res.retryAfter = Retry, retryAfter(resp.Header)
	default:
		for _, s := range goneStatus {
			if status == s {
				res.outcome = Gone
			}
		}
	}
	return res, body
}

// retryAfter reads the header Retry-After: seconds or a date.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// encode returns a body as JSON. What it is used for can always be encoded.
func encode(body any) []byte {
	text, _ := json.Marshal(body)
	return text
}

// hook wakes a device by a signed request to a URL.
type hook struct {
	client *http.Client
	signer webhook.Signer
}

func (p hook) push(ctx context.Context, w registry.Wake, m message) result {
	body := encode(m)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return refused(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "farhand")
	p.signer.Sign(req.Header, "wake_"+uuid.NewString(), time.Now(), body)
	res, _ := do(p.client, req, http.StatusGone) // 404 may be a deployment that went wrong
	return res
}

// web wakes a device by a push service that a browser or a person chose: Web Push or UnifiedPush.
type web struct {
	client  *http.Client
	key     *ecdh.PrivateKey
	subject string
}

// publicKey returns the gateway's public key, as pushManager.subscribe takes it.
func (p web) publicKey() string {
	return base64.RawURLEncoding.EncodeToString(p.key.PublicKey().Bytes())
}

func (p web) push(ctx context.Context, w registry.Wake, m message) result {
	resp, err := webpush.SendNotificationWithContext(ctx, encode(m), &webpush.Subscription{
		Endpoint: w.Endpoint, Keys: webpush.Keys{P256dh: w.Keys.P256DH, Auth: w.Keys.Auth},
	}, &webpush.Options{
		HTTPClient: p.client, Topic: collapse, TTL: int(pushLife.Seconds()), Urgency: webpush.UrgencyHigh,
		Subscriber:      strings.TrimPrefix(p.subject, "mailto:"), // which the library adds
		VAPIDPublicKey:  p.publicKey(),
		VAPIDPrivateKey: base64.RawURLEncoding.EncodeToString(p.key.Bytes()),
	})
	if err != nil {
		return failure(err)
	}
	res, _ := read(resp, http.StatusNotFound, http.StatusGone)
	return res
}

// Asked is what became of a request to wake a device.
type Asked string

// What became of it.
const (
	Pushed       Asked = "pushed"       // a push was made; Stats.Pushes has its outcome
	Planned      Asked = "planned"      // a push is planned for later
	Unneeded     Asked = "unneeded"     // the device is connected, or no call waits for it
	Unregistered Asked = "unregistered" // the device has not registered how
	Dropped      Asked = "dropped"      // the pod had too many devices to wake
	Failed       Asked = "failed"       // the store failed
)

// AllAsked returns all values of Asked.
func AllAsked() []Asked { return []Asked{Pushed, Planned, Unneeded, Unregistered, Dropped, Failed} }

// Stats are a Service's counts since New.
type Stats struct {
	Asked  map[Asked]int64
	Pushes map[registry.WakeKind]map[Outcome]int64
}

func newStats() Stats {
	st := Stats{make(map[Asked]int64), make(map[registry.WakeKind]map[Outcome]int64)}
	for _, kind := range registry.WakeKinds() {
		st.Pushes[kind] = make(map[Outcome]int64)
	}
	return st
}

// Stats returns the counts.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := newStats()
	maps.Copy(st.Asked, s.stats.Asked)
	for kind, counts := range s.stats.Pushes {
		maps.Copy(st.Pushes[kind], counts)
	}
	return st
}

// Pools returns the pools that tenants share, by name.
func (s *Service) Pools() map[string]share.Stats {
	var pushes share.Stats
	for _, pool := range s.pushes {
		pushes = pushes.Plus(pool.Stats())
	}
	return map[string]share.Stats{"wakes": s.asked.Stats(), "pushes": pushes}
}
