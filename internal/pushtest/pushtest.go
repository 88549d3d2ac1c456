// Package pushtest is a push service for tests: it takes Web Push messages over HTTP (RFC 8030), checks the identity of
// their sender (RFC 8292) and decrypts them as a browser does (RFC 8188, RFC 8291), by code of its own.
package pushtest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"time"
)

// Subscription is a browser's subscription: the keys that the sender encrypts for.
type Subscription struct {
	key  *ecdh.PrivateKey
	auth []byte
}

// NewSubscription returns a subscription with new keys.
func NewSubscription() *Subscription {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // never happens
	}
	auth := make([]byte, 16)
	_, _ = rand.Read(auth) // never fails
	return &Subscription{key, auth}
}

// Keys returns p256dh and auth, as the Push API does.
func (s *Subscription) Keys() (p256dh, auth string) {
	return encode(s.key.PublicKey().Bytes()), encode(s.auth)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Push is a message that came to an endpoint.
type Push struct {
	Header http.Header
	Text   []byte // decrypted
	Claims map[string]any
}

// Open checks and decrypts a request to an endpoint of the subscription. publicKey is the sender's, in base64url;
// origin is the endpoint's.
func (s *Subscription) Open(r *http.Request, publicKey, origin string) (Push, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return Push{}, err
	}
	p := Push{Header: r.Header}
	if r.Method != http.MethodPost || r.Header.Get("Content-Encoding") != "aes128gcm" || r.Header.Get("TTL") == "" {
		return p, fmt.Errorf("%s with the headers %v is no push", r.Method, r.Header)
	}
	if len(body) > 4096 {
		return p, fmt.Errorf("%d bytes are more than push services must accept", len(body))
	}
	if p.Claims, err = checkSender(r.Header.Get("Authorization"), publicKey, origin); err != nil {
		return p, err
	}
	p.Text, err = s.decrypt(body)
	return p, err
}

// checkSender checks the header Authorization by RFC 8292, and returns the token's claims.
func checkSender(header, publicKey, origin string) (claims map[string]any, err error) {
	params, ok := strings.CutPrefix(header, "vapid ")
	if !ok {
		return nil, fmt.Errorf("authorization %.20q", header)
	}
	given := make(map[string]string)
	for part := range strings.SplitSeq(params, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		given[name] = value
	}
	if given["k"] != publicKey {
		return nil, fmt.Errorf("the key is %s, not the one that was subscribed with", given["k"])
	}
	if err := VerifyES256(given["t"], publicKey, &claims); err != nil {
		return nil, err
	}
	exp, _ := claims["exp"].(float64)
	left := time.Until(time.Unix(int64(exp), 0))
	if claims["aud"] != origin || left <= 0 || left > 24*time.Hour {
		return nil, fmt.Errorf("the token has the claims %v", claims)
	}
	return claims, nil
}

// VerifyES256 checks the signature of a JSON Web Token with a public key, an uncompressed point in base64url, and
// decodes its claims.
func VerifyES256(token, publicKey string, claims any) error {
	raw, err := base64.RawURLEncoding.DecodeString(publicKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), raw)
	if err != nil {
		return err
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("the token has no three parts")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(signature) != 64 {
		return errors.New("the signature is malformed")
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
	if !ecdsa.Verify(key, sum[:], r, s) {
		return errors.New("the signature is wrong")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	return json.Unmarshal(text, claims)
}

const (
	saltLength = 16
	headLength = saltLength + 4 + 1 // with the record size and the length of the key's id
)

// decrypt decrypts a body of one record.
func (s *Subscription) decrypt(body []byte) ([]byte, error) {
	if len(body) < headLength+int(body[headLength-1]) {
		return nil, errors.New("the body is shorter than its header")
	}
	salt, size := body[:saltLength], binary.BigEndian.Uint32(body[saltLength:])
	id, record := body[headLength:headLength+int(body[headLength-1])], body[headLength+int(body[headLength-1]):]
	if uint32(len(record)) > size {
		return nil, errors.New("the body has more than one record")
	}
	sender, err := ecdh.P256().NewPublicKey(id)
	if err != nil {
		return nil, err
	}
	shared, err := s.key.ECDH(sender)
	if err != nil {
		return nil, err
	}
	info := "WebPush: info\x00" + string(s.key.PublicKey().Bytes()) + string(id)
	ikm, err := hkdf.Key(sha256.New, shared, s.auth, info, 32)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	padded, err := gcm.Open(nil, nonce, record, nil)
	if err != nil {
		return nil, err
	}
	text := bytes.TrimRight(padded, "\x00")
	if len(text) == 0 || text[len(text)-1] != 2 {
		return nil, errors.New("the padding is malformed")
	}
	return text[:len(text)-1], nil
}
