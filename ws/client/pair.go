package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrRejected is the error of Pair when an approver rejected the device.
var ErrRejected = errors.New("client: an approver rejected the device")

// PairOptions are the options of Pair. Show is required; all other fields are optional.
type PairOptions struct {
	DeviceID   string   // if empty, the gateway makes one
	DeviceName string   // for the approver
	Platform   string   // for the approver
	Tools      []string // names of tools the device wants to offer

	// Show shows a code to a person. The person must enter it where pairings are approved, before it expires. Pair
	// calls Show once for each code.
	Show func(code string, expires time.Time)

	Store Store       // stores the credential; nil: Pair only returns it
	TLS   *tls.Config // as in WithTLS
}

const (
	maxAnswer   = 64 << 10    // bytes of a response that are read
	maxInterval = time.Minute // of polls, whatever the gateway asks for
)

// Pair returns the device's credential from o.Store, or pairs the device with the gateway at address. To pair, it makes
// a key, requests a code, shows it, and waits for an approver until ctx ends. It replaces an expired code with a new
// one. It stores the credential before it returns. The error is ErrRejected, a *RefusedError, or an error of ctx or the
// store.
func Pair(ctx context.Context, address string, o PairOptions) (Credential, error) {
	if o.Show == nil {
		return Credential{}, errors.New("client: PairOptions.Show is required to display the code")
	}
	if o.Store != nil {
		if c, err := o.Store.Load(ctx); err != nil || c.Token != "" {
			return c, err
		}
	}
	base, err := endpoint(address)
	if err != nil {
		return Credential{}, fmt.Errorf("client: the address %q: %w", address, err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Credential{}, err
	}
	web := newWeb(base, o.TLS)
	defer web.client.CloseIdleConnections()
	for {
		c, err := web.pair(ctx, &o, key)
		switch {
		case errors.Is(err, errExpired):
			continue
		case err != nil:
			return Credential{}, err
		case o.Store != nil:
			return c, o.Store.Save(ctx, c)
		default:
			return c, nil
		}
	}
}

var errExpired = errors.New("client: the code has expired")

// pair makes one pairing request and waits for the decision. A further request with o is for the same device.
func (w web) pair(ctx context.Context, o *PairOptions, key ed25519.PrivateKey) (Credential, error) {
	var asked struct {
		Secret    string `json:"secret"`
		Code      string `json:"code"`
		DeviceID  string `json:"device_id"`
		ExpiresIn int    `json:"expires_in"`
		Interval  int    `json:"interval"`
	}
	public := key.Public().(ed25519.PublicKey)
	err := w.post(ctx, "/pair", Credential{}, map[string]any{
		"device_id": o.DeviceID, "device_name": o.DeviceName, "platform": o.Platform,
		"public_key": base64.RawURLEncoding.EncodeToString(public), "tools": append([]string{}, o.Tools...),
	}, &asked)
	if err != nil {
		return Credential{}, err
	}
	o.DeviceID = asked.DeviceID
	o.Show(asked.Code, time.Now().Add(seconds(asked.ExpiresIn)))
	interval := min(max(seconds(asked.Interval), time.Second), maxInterval)
	for {
		if err := sleep(ctx, interval); err != nil {
			return Credential{}, err
		}
		var answer struct {
			Status     string `json:"status"`
			DeviceID   string `json:"device_id"`
			Credential string `json:"credential"`
		}
		err := w.post(ctx, "/pair/status", Credential{}, map[string]any{"secret": asked.Secret}, &answer)
		var refused *RefusedError
		switch {
		case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
			return Credential{}, errExpired
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return Credential{}, refused
		case ctx.Err() != nil:
			return Credential{}, ctx.Err()
		case err != nil: // the gateway is unreachable; the request may still be approved
			continue
		case answer.Status == "rejected":
			return Credential{}, ErrRejected
		case answer.Status == "approved":
			return Credential{Token: answer.Credential, DeviceID: answer.DeviceID, Key: key}, nil
		}
	}
}

// web sends HTTP requests to the gateway.
type web struct {
	base   url.URL
	client *http.Client
}

func newWeb(endpoint *url.URL, t *tls.Config) web {
	base := *endpoint
	base.Scheme = map[string]string{"ws": "http", "wss": "https"}[base.Scheme]
	base.Path, base.RawQuery = strings.TrimSuffix(strings.TrimSuffix(base.Path, "/ws/chat"), pathMCP), ""
	return web{base, &http.Client{
		Timeout:   dialTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: t},
		// No redirects: the token is only for the URL it was given with, and a gateway must not cause other requests.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// post sends a body and decodes the response into v. A request with a credential has its token, and its signature if it
// has a key. If the gateway rejects the request, the error is a *RefusedError.
func (w web) post(ctx context.Context, path string, as Credential, body, v any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base.JoinPath(path).String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if as.Token != "" {
		req.Header.Set("Authorization", "Bearer "+as.Token)
	}
	if len(as.Key) > 0 {
		signature, err := w.sign(ctx, as)
		if err != nil {
			return err
		}
		req.Header.Set("Farhand-Signature", signature)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return refusal(resp)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, v)
}

func (w web) sign(ctx context.Context, c Credential) (string, error) {
	var challenge struct {
		Nonce string `json:"nonce"`
	}
	if err := w.post(ctx, "/pair/challenge", Credential{Token: c.Token}, map[string]any{}, &challenge); err != nil {
		return "", err
	}
	signature := ed25519.Sign(c.Key, []byte("farhand-device-v1\n"+challenge.Nonce+"\n"+c.DeviceID))
	return challenge.Nonce + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// Credential is the credential of a paired device. It is a secret: its holder can act as the device.
type Credential struct {
	Token    string             // the bearer token
	DeviceID string             // device id of the token
	Key      ed25519.PrivateKey // signs connections; empty: the token alone is enough
}

// Store stores a device's credential between runs. Its methods are called by one goroutine at a time.
type Store interface {
	// Load returns the credential, or one with an empty Token if there is none.
	Load(ctx context.Context) (Credential, error)
	// Save stores a credential and replaces the previous one.
	Save(ctx context.Context, c Credential) error
}

// FileStore is a Store in a file that only its user can read.
type FileStore string

type storedCredential struct {
	Token    string `json:"token"`
	DeviceID string `json:"device_id"`
	Key      string `json:"private_key,omitempty"` // the seed, in base64url
}

// Load implements Store. It fails if other users may read the file.
func (f FileStore) Load(context.Context) (Credential, error) {
	info, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return Credential{}, nil
	}
	if err != nil {
		return Credential{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Credential{}, fmt.Errorf("client: other users can read %s: remove the file and pair the device "+
			"again", string(f))
	}
	text, err := os.ReadFile(string(f))
	if err != nil {
		return Credential{}, err
	}
	var s storedCredential
	if err := json.Unmarshal(text, &s); err != nil || s.Token == "" {
		return Credential{}, fmt.Errorf("client: %s does not hold the credential of a device", string(f))
	}
	c := Credential{Token: s.Token, DeviceID: s.DeviceID}
	if s.Key != "" {
		seed, err := base64.RawURLEncoding.DecodeString(s.Key)
		if err != nil || len(seed) != ed25519.SeedSize {
			return Credential{}, fmt.Errorf("client: the key in %s is damaged", string(f))
		}
		c.Key = ed25519.NewKeyFromSeed(seed)
	}
	return c, nil
}

// Save implements Store. It replaces the file atomically, so a crash leaves the old or the new one.
func (f FileStore) Save(_ context.Context, c Credential) error {
	s := storedCredential{Token: c.Token, DeviceID: c.DeviceID}
	if len(c.Key) == ed25519.PrivateKeySize {
		s.Key = base64.RawURLEncoding.EncodeToString(c.Key.Seed())
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(string(f)), ".credential-*") // only its user can read it
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // unless it was renamed
	_, err = temporary.Write(text)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), string(f))
}
