package pairing

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/netip"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// How a device sends its signature with a request: in a header, or as a browser does, in an offered subprotocol.
const (
	HeaderSignature     = "Farhand-Signature"
	subprotocolPrefix   = "signature."
	headerSubprotocol   = "Sec-Websocket-Protocol"
	PathChallenge       = "/pair/challenge" // the only path for which a device with a key needs no signature
	credentialPrefix    = string(registry.CredentialDevice) + ":"
	signedTextBeginning = "farhand-device-v1\n"
	nonceBytes          = 33                  // random ones; three of them are four letters of base64
	sourceBytes         = 9                   // of the digest of a source, at the end of a nonce
	sourceLength        = sourceBytes / 3 * 4 // of them in base64
)

// SignedText returns what a device signs.
func SignedText(nonce, deviceID string) []byte {
	return []byte(signedTextBeginning + nonce + "\n" + deviceID)
}

// Challenge returns a nonce that a paired device signs within registry.NonceTTL, for one request from anywhere. Each
// source has nonces of its own, so that who has a copy of the credential, elsewhere, uses up none of the device's.
func (s *Service) Challenge(ctx context.Context, id auth.Identity, source netip.Prefix) (nonce string, err error) {
	credential, ok := strings.CutPrefix(id.Credential, credentialPrefix)
	if !ok {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"Only the credential of a paired device signs anything; yours needs no signature.")
	}
	random := make([]byte, nonceBytes)
	_, _ = rand.Read(random) // never fails
	sum := sha256.Sum256([]byte(source.String()))
	nonce = base64.RawURLEncoding.EncodeToString(append(random, sum[:sourceBytes]...))
	return nonce, s.cfg.Store.PutNonce(ctx, id.Tenant, nonceOwner(credential, nonce), nonce,
		registry.NonceTTL)
}

// nonceOwner returns what the store keeps a nonce for: the credential and the source that asked for it, which is the
// end of the nonce.
func nonceOwner(credential, nonce string) string {
	return credential + "/" + nonce[len(nonce)-sourceLength:]
}

// Prove checks the signature of a request with a credential that has a public key. Only a signature that is right uses
// its nonce up, so nobody but the device can. It is for auth.KeysConfig.
func (s *Service) Prove(ctx context.Context, r *http.Request, c registry.Credential) error {
	if len(c.PublicKey) == 0 || r.URL.Path == PathChallenge {
		return nil
	}
	nonce, signature, ok := signatureOf(r)
	if !ok {
		return unsigned("The credential of this device is good with a signature only: get a nonce from " +
			PathChallenge + ", sign it, and send it in " + HeaderSignature + ".")
	}
	if len(c.PublicKey) != ed25519.PublicKeySize ||
		!ed25519.Verify(c.PublicKey, SignedText(nonce, c.DeviceID), signature) {
		return unsigned("The signature is not right for this device.")
	}
	fresh, err := s.cfg.Store.TakeNonce(ctx, c.Tenant, nonceOwner(c.ID, nonce), nonce)
	if err != nil {
		return err
	}
	if !fresh {
		return unsigned("The nonce of the signature was used before, or is too old. Get another one.")
	}
	return nil
}

func unsigned(text string) error { return registry.Errorf(registry.CodeUnauthenticated, "%s", text) }

// signatureOf returns the nonce and the signature of a request.
func signatureOf(r *http.Request) (nonce string, signature []byte, ok bool) {
	value := r.Header.Get(HeaderSignature)
	for _, line := range r.Header.Values(headerSubprotocol) {
		for p := range strings.SplitSeq(line, ",") {
			if s, found := strings.CutPrefix(strings.TrimSpace(p), subprotocolPrefix); found && value == "" {
				value = s
			}
		}
	}
	nonce, text, ok := strings.Cut(value, ".")
	if !ok || len(nonce) < sourceLength || len(value) > 512 {
		return "", nil, false
	}
	signature, err := base64.RawURLEncoding.DecodeString(text)
	return nonce, signature, err == nil
}
