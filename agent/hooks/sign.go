package hooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// signer is the key of signatures by Standard Webhooks, symmetric.
type signer []byte

// newSigner reads the key of a secret. It fails if that is not Base64.
func newSigner(secret string) (signer, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
}

// sign sets the headers that authenticate a body.
func (s signer) sign(h http.Header, id string, at time.Time, body []byte) {
	mac := hmac.New(sha256.New, s)
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body) // cannot fail
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
