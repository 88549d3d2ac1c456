package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/webhook"
)

// TestSignature: the example of Standard Webhooks (libraries/go, v0.0.1).
func TestSignature(t *testing.T) {
	s, err := webhook.NewSigner("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := make(http.Header)
	s.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	for name, want := range map[string]string{
		"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
