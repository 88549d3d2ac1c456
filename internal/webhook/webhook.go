// Package webhook signs requests by the symmetric scheme of Standard Webhooks.
package webhook

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

// The form of a secret: the prefix, then a key of a length in this range, in Base64.
const (
	SecretPrefix = "whsec_"

	minKey, maxKey = 24, 64 // bytes
)

// Signer is the key of signatures. It is safe for concurrent use.
type Signer []byte

// NewSigner reads the key of a secret.
func NewSigner(secret string) (Signer, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
	if err != nil || !strings.HasPrefix(secret, SecretPrefix) || len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("must be %s and %d to %d bytes in Base64; create one with: "+
			"echo %s$(openssl rand -base64 32)",
			SecretPrefix, minKey, maxKey, SecretPrefix)
	}
	return key, nil
}

// Sign sets the headers that authenticate a body.
func (s Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	mac := hmac.New(sha256.New, s)
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body) // cannot fail
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
