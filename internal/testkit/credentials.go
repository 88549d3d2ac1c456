package testkit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Certificate writes a certificate for this machine, as server and as client, to cert.pem and key.pem in a folder, in
// place of an earlier one. TrustOf returns a client's configuration that accepts it until then.
func Certificate(t testing.TB, dir string, until time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	if until.Before(from) {
		from = until
	}
	template := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"}, NotBefore: from.Add(-time.Hour),
		NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TrustOf returns the configuration of a client that trusts the certificates in a file only.
func TrustOf(t testing.TB, certFile string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s has no certificate", certFile)
	}
	return &tls.Config{RootCAs: roots}
}

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

// VerifyWebhook returns an error unless a request is signed by Standard Webhooks with secret.
func VerifyWebhook(secret string, h http.Header, body []byte) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.Get("Webhook-Id") + "." + h.Get("Webhook-Timestamp") + "."))
	mac.Write(body)
	if h.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		return errors.New("the signature is wrong")
	}
	return nil
}
