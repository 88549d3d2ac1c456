package wake

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"
	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/webhook"
	"github.com/farhand/farhand/registry"
)

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
