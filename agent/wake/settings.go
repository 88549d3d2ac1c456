package wake

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/internal/webhook"
)

// Settings are the credentials for push services. A kind without its credentials is not offered to devices. Each secret
// can also be in a file: its variable with _FILE.
type Settings struct {
	WebhookSecret  secret.Text `env:"WEBHOOK_SECRET" doc:"Secret that signs wakes by webhook (Standard Webhooks): whsec_ and 24 to 64 bytes in Base64. Empty: devices cannot be woken by webhook (docs/wake.md)."`
	VAPIDKey       secret.Text `env:"VAPID_KEY" doc:"Private key of the gateway for Web Push and UnifiedPush (RFC 8292): 32 bytes of P-256 in base64url. The same on every pod; with another key browsers must subscribe again. Empty: devices cannot be woken by either."`
	VAPIDSubject   string      `env:"VAPID_SUBJECT" doc:"Contact that push services get with each push: mailto: or https: URL. Required with FARHAND_WAKE_VAPID_KEY."`
	FCMCredentials secret.Text `env:"FCM_CREDENTIALS" doc:"Key of a Google service account in JSON, for Firebase Cloud Messaging; usually by FARHAND_WAKE_FCM_CREDENTIALS_FILE. Empty: devices cannot be woken by it."`
	APNSKey        secret.Text `env:"APNS_KEY" doc:"Key of Apple's push service in PEM (.p8); usually by FARHAND_WAKE_APNS_KEY_FILE. Empty: devices cannot be woken by it."`
	APNSKeyID      string      `env:"APNS_KEY_ID" doc:"Id of that key. Required with it."`
	APNSTeamID     string      `env:"APNS_TEAM_ID" doc:"Id of the developer team of that key. Required with it."`
	APNSURL        string      `env:"APNS_URL" envDefault:"https://api.push.apple.com" doc:"Apple's push service; https://api.sandbox.push.apple.com for apps that Xcode installed."`
	Content        bool        `env:"CONTENT" envDefault:"false" doc:"Name the waiting calls' tools, and their number, in pushes. false: no content of a call leaves the gateway in a push."`
}

// Problem is what is wrong with a setting.
type Problem struct {
	Variable string // without FARHAND_WAKE_
	Err      error
}

// Check returns what is wrong with the settings.
func (s Settings) Check() []Problem {
	_, problems := s.read()
	return problems
}

// keys are the decoded settings. A field is nil if its kind is not set up.
type keys struct {
	webhook webhook.Signer
	vapid   *ecdh.PrivateKey
	fcm     *account
	apns    *ecdsa.PrivateKey
}

func (s Settings) read() (k keys, problems []Problem) {
	var err error
	note := func(variable string, err error) {
		if err != nil {
			problems = append(problems, Problem{variable, err})
		}
	}
	if s.WebhookSecret != "" {
		k.webhook, err = webhook.NewSigner(string(s.WebhookSecret))
		note("WEBHOOK_SECRET", err)
	}
	if s.VAPIDKey != "" {
		k.vapid, err = readVAPID(string(s.VAPIDKey))
		note("VAPID_KEY", err)
		if u, err := url.Parse(s.VAPIDSubject); err != nil || u.Scheme != "mailto" && u.Scheme != "https" {
			note("VAPID_SUBJECT", errors.New("must be a mailto: or https: URL"))
		}
	}
	if s.FCMCredentials != "" {
		k.fcm, err = readAccount([]byte(s.FCMCredentials))
		note("FCM_CREDENTIALS", err)
	}
	if s.APNSKey != "" {
		k.apns, err = readPrivate[*ecdsa.PrivateKey](string(s.APNSKey))
		note("APNS_KEY", err)
		if s.APNSKeyID == "" || s.APNSTeamID == "" {
			note("APNS_KEY_ID, APNS_TEAM_ID", errors.New("are required with the key"))
		}
		if u, err := url.Parse(s.APNSURL); err != nil || u.Scheme != "https" || u.Host == "" {
			note("APNS_URL", errors.New("must be an https URL"))
		}
	}
	return k, problems
}

func readVAPID(text string) (*ecdh.PrivateKey, error) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil {
		var key *ecdh.PrivateKey
		if key, err = ecdh.P256().NewPrivateKey(raw); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("must be a private key of P-256, 32 bytes in base64url; docs/wake.md shows how to create one")
}

// readPrivate reads a private key in PKCS #8, in PEM.
func readPrivate[K any](text string) (key K, err error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return key, errors.New("must be a private key in PEM")
	}
	found, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return key, errors.New("must be a private key in PKCS #8")
	}
	key, ok := found.(K)
	if !ok {
		return key, fmt.Errorf("has a key of another type: %T", found)
	}
	return key, nil
}

// account is the key of a Google service account.
type account struct {
	ProjectID  string `json:"project_id"`
	KeyID      string `json:"private_key_id"`
	PrivateKey string `json:"private_key"`
	Email      string `json:"client_email"`
	TokenURL   string `json:"token_uri"`

	key *rsa.PrivateKey
}

func readAccount(text []byte) (*account, error) {
	var a account
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, errors.New("must be the JSON of a service account's key") // err may show a part of it
	}
	if u, err := url.Parse(a.TokenURL); a.ProjectID == "" || a.Email == "" || err != nil || u.Scheme != "https" {
		return nil, errors.New("must have project_id, client_email and token_uri, as a service account's key has")
	}
	var err error
	if a.key, err = readPrivate[*rsa.PrivateKey](a.PrivateKey); err != nil {
		return nil, fmt.Errorf("private_key: %w", err)
	}
	return &a, nil
}
