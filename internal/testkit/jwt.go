package testkit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"testing"
)

// JWT returns a JSON Web Token with these claims. alg is an algorithm of RFC 7518, or none; key is a secret or a
// private key of its kind. header adds to the header, or changes it.
func JWT(t testing.TB, alg string, key any, header, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"alg": alg, "typ": "JWT"}
	maps.Copy(all, header)
	first, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return SignedJWT(t, alg, key, string(first), string(second))
}

// SignedJWT returns a token of a header and claims as they are written, signed as JWT does.
func SignedJWT(t testing.TB, alg string, key any, header, claims string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(claims))
	signature, err := sign(alg, key, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(signature)
}

func sign(alg string, key any, text []byte) ([]byte, error) {
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[alg[2:]]
	var sum []byte
	if hash != 0 {
		h := hash.New()
		h.Write(text)
		sum = h.Sum(nil)
	}
	switch alg[:2] {
	case "HS":
		mac := hmac.New(hash.New, key.([]byte))
		mac.Write(text)
		return mac.Sum(nil), nil
	case "RS":
		return rsa.SignPKCS1v15(rand.Reader, key.(*rsa.PrivateKey), hash, sum)
	case "PS":
		return rsa.SignPSS(rand.Reader, key.(*rsa.PrivateKey), hash, sum, nil)
	case "ES":
		private := key.(*ecdsa.PrivateKey)
		r, s, err := ecdsa.Sign(rand.Reader, private, sum)
		if err != nil {
			return nil, err
		}
		size := (private.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), nil
	case "Ed":
		return ed25519.Sign(key.(ed25519.PrivateKey), text), nil
	default: // none
		return nil, nil
	}
}
