package jwt_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/registry"
)

// Every algorithm that is supported verifies, with a file of keys and with a set.
func TestAlgorithms(t *testing.T) {
	c, s := newClock(), makeSigners()
	pems := append(append(pemOf(t, &s.rsa.PublicKey), pemOf(t, &s.ec.PublicKey)...), pemOf(t, s.ed.Public())...)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{KeyID: "r", Key: &s.rsa.PublicKey, Algorithm: "RS256", Use: "sig"}, published("e", &s.ec.PublicKey),
		published("d", s.ed.Public()), {KeyID: "enc", Key: &s.otherRSA.PublicKey, Use: "enc"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for kind, file := range map[string][]byte{"pem": pems, "set": set[:len(set):len(set)]} {
		if kind == "set" { // the key for encryption is no mistake in what is published, but one in a file
			_, err := jwt.New(jwt.Config{Settings: jwt.Settings{Issuer: issuer, Audience: audience,
				KeyFile: fileOf(t, file)}})
			if err == nil {
				t.Error("a key that is of no use was accepted in a file")
			}
			file = []byte(strings.Replace(string(file), `"use":"enc"`, `"use":"sig"`, 1))
		}
		v := open(t, c, func(cfg *jwt.Config) { cfg.KeyFile = fileOf(t, file) })
		for _, tc := range []struct {
			method string
			key    any
			kid    string
		}{
			{"HS256", secret, ""}, {"RS256", s.rsa, "r"},
			{"ES256", s.ec, "e"}, {"EdDSA", s.ed, "d"},
		} {
			for _, header := range []map[string]any{{"kid": tc.kid}, nil} {
				token := sign(t, tc.method, tc.key, header, c.claims(nil))
				if id, err := authenticate(t, v, token); err != nil || id.User != "ann" {
					t.Errorf("%s, %s, %v: %+v, %v", kind, tc.method, header, id, err)
				}
			}
		}
	}
}

func TestIdentityOfClaims(t *testing.T) {
	c := newClock()
	v := open(t, c, nil)
	id, err := authenticate(t, v, sign(t, "HS256", secret, nil, c.claims(map[string]any{
		"tenant": "acme", "roles": "caller approver offline_access", "tools": []string{"camera_*", "echo"},
		"context": "group", "device_id": "cam-1", "aud": []string{"other", audience},
	})))
	want := auth.Identity{
		Tenant: "acme", User: "ann", Roles: auth.RoleCaller | auth.RoleApprover, Device: "cam-1",
		Tools: "camera_* echo", Context: "group", Credential: "jwt:t1", Issued: c.Now(),
		Expires: c.Now().Add(time.Hour + 30*time.Second),
	}
	if err != nil || id != want {
		t.Errorf("identity %+v, %v\nwant     %+v", id, err, want)
	}
	// Without roles a caller is known, and may do nothing.
	id, err = authenticate(t, v, sign(t, "HS256", secret, nil,
		c.claims(map[string]any{"roles": nil, "jti": nil})))
	if err != nil || id.Admin || id.Roles != 0 || id.Tenant != registry.DefaultTenant ||
		len(id.Credential) < len("jwt:")+16 {
		t.Errorf("without roles and jti: %+v, %v", id, err)
	}
	// Names of claims by configuration, also inside of others.
	named := open(t, c, func(cfg *jwt.Config) {
		cfg.Claims = jwt.ClaimNames{Tenant: "https://example.com/org", User: "email", Roles: "realm_access.roles"}
	})
	id, err = authenticate(t, named, sign(t, "HS256", secret, nil, c.claims(map[string]any{
		"https://example.com/org": "acme", "email": "ann@example.com", "roles": "caller",
		"realm_access": map[string]any{"roles": []string{"admin", "uma_authorization"}},
	})))
	if err != nil || id.Tenant != "acme" || id.User != "ann@example.com" || !id.Admin {
		t.Errorf("named claims: %+v, %v", id, err)
	}
}

// Whatever is wrong with a token, the client gets the same message, and the cause has nothing of the token.
func TestRefusedTokens(t *testing.T) {
	c, s := newClock(), makeSigners()
	rsaPEM := pemOf(t, &s.rsa.PublicKey)
	v := open(t, c, func(cfg *jwt.Config) {
		cfg.KeyFile = fileOf(t, append(rsaPEM[:len(rsaPEM):len(rsaPEM)],
			pemOf(t, &s.ec.PublicKey)...))
	})
	if _, err := authenticate(t, v, sign(t, "RS256", s.rsa, nil, c.claims(nil))); err != nil {
		t.Fatal("the good token:", err)
	}
	hs := func(changes map[string]any) string {
		return sign(t, "HS256", secret, nil, c.claims(changes))
	}
	head := func(more map[string]any) string {
		return sign(t, "HS256", secret, more, c.claims(nil))
	}
	now := c.Now().Unix()
	der, err := x509.MarshalPKIXPublicKey(&s.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	good, err := json.Marshal(c.claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	const header = `{"alg":"HS256","typ":"JWT"}`
	if _, err := authenticate(t, v, raw(t, header, string(good))); err != nil {
		t.Fatal("the good raw token:", err)
	}
	// A public key is never a secret, in whatever form an attacker knows it.
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&s.rsa.PublicKey)})
	parts := strings.Split(hs(nil), ".")
	for name, token := range map[string]string{
		"none": sign(t, "none", nil, nil,
			c.claims(nil)),
		"none, with the signature of another": encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2],
		"None":                                raw(t, `{"alg":"None"}`, string(good)),
		"no alg":                              raw(t, `{"typ":"JWT"}`, string(good)),
		"HS256 with the PEM":                  sign(t, "HS256", rsaPEM, nil, c.claims(nil)),
		"HS256 with the other PEM":            sign(t, "HS256", pkcs1, nil, c.claims(nil)),
		"HS256 with the DER":                  sign(t, "HS256", der, nil, c.claims(nil)),
		"HS256 with the modulus":              sign(t, "HS256", s.rsa.N.Bytes(), nil, c.claims(nil)),
		"HS512":                               sign(t, "HS512", secret, nil, c.claims(nil)),
		"PS256":                               sign(t, "PS256", s.rsa, nil, c.claims(nil)),
		"RS512":                               sign(t, "RS512", s.rsa, nil, c.claims(nil)),
		"another RSA key":                     sign(t, "RS256", s.otherRSA, nil, c.claims(nil)),
		"ES384":                               sign(t, "ES384", s.ec384, nil, c.claims(nil)),
		"EdDSA, no such key":                  sign(t, "EdDSA", s.ed, nil, c.claims(nil)),
		"RS256 header, EC signature": encode([]byte(`{"alg":"RS256"}`)) + sign(t, "ES256", s.ec, nil,
			c.claims(nil))[len(encode([]byte(`{"alg":"ES256","typ":"JWT"}`))):],
		"jwk": sign(t, "RS256", s.otherRSA,
			map[string]any{"jwk": published("", &s.otherRSA.PublicKey)}, c.claims(nil)),
		"jwk, right key":      head(map[string]any{"jwk": map[string]string{"kty": "oct", "k": encode(secret)}}),
		"jku":                 head(map[string]any{"jku": "https://evil.example/keys"}),
		"JKU":                 head(map[string]any{"JKU": "https://evil.example/keys"}),
		"x5u":                 head(map[string]any{"x5u": "https://evil.example/cert"}),
		"x5c":                 head(map[string]any{"x5c": []string{"MII"}}),
		"crit":                head(map[string]any{"crit": []string{"exp"}}),
		"b64":                 head(map[string]any{"b64": false}),
		"a JWE":               head(map[string]any{"enc": "A256GCM"}),
		"nested":              head(map[string]any{"cty": "JWT"}),
		"another type":        head(map[string]any{"typ": "logout+jwt"}),
		"kid no text":         raw(t, `{"alg":"HS256","kid":7}`, string(good)),
		"alg twice":           raw(t, `{"alg":"none","alg":"HS256"}`, string(good)),
		"alg in two cases":    raw(t, `{"ALG":"none","alg":"HS256"}`, string(good)),
		"kid by a look-alike": raw(t, `{"alg":"HS256","`+"\u212a"+`id":"x"}`, string(good)),

		"a claim twice": raw(t, header, `{"sub":"bob",`+string(good)[1:]),
		"aud twice":     raw(t, header, strings.Replace(string(good), `"aud":`, `"aud":"x","aud":`, 1)),
		"deep": hs(map[string]any{"x": json.RawMessage(strings.Repeat("[", 20) +
			strings.Repeat("]", 20))}),
		"huge":              hs(map[string]any{"x": strings.Repeat("x", 8<<10)}),
		"not UTF-8":         raw(t, header, strings.Replace(string(good), "ann", "a\xffn", 1)),
		"something after":   raw(t, header, string(good)+"{}"),
		"claims are a list": raw(t, header, `[]`),
		"claims are null":   raw(t, header, `null`),
		"expired":           hs(map[string]any{"exp": now - 31}),
		"no exp":            hs(map[string]any{"exp": nil}),
		"tools null":        raw(t, header, strings.Replace(string(good), `"exp":`, `"tools":null,"exp":`, 1)),
		"device null":       raw(t, header, strings.Replace(string(good), `"exp":`, `"device_id":null,"exp":`, 1)),
		"device empty":      raw(t, header, strings.Replace(string(good), `"exp":`, `"device_id":"","exp":`, 1)),
		"context null":      raw(t, header, strings.Replace(string(good), `"exp":`, `"context":null,"exp":`, 1)),
		"exp null":          raw(t, header, strings.Replace(string(good), `"exp":`, `"exp":null,"x":`, 1)),
		"exp a text":        hs(map[string]any{"exp": "9999999999"}),
		"exp without end":   hs(map[string]any{"exp": json.RawMessage("1e300")}),
		"exp before 1970":   hs(map[string]any{"exp": -1}),
		"too long":          hs(map[string]any{"exp": now + 24*3600 + 31}),
		"too long from iat": hs(map[string]any{"iat": now - 24*3600, "exp": now + 60}),
		"iat in the future": hs(map[string]any{"iat": now + 31}),
		"not yet":           hs(map[string]any{"nbf": now + 31}),
		"another audience":  hs(map[string]any{"aud": "another"}),
		"no audience":       hs(map[string]any{"aud": nil}),
		"another issuer":    hs(map[string]any{"iss": issuer + "/"}),
		"no issuer":         hs(map[string]any{"iss": nil}),
		"no user":           hs(map[string]any{"sub": nil}),
		"user no text":      hs(map[string]any{"sub": 7}),
		"user unseen":       hs(map[string]any{"sub": "ann\u202e"}),
		"tenant":            hs(map[string]any{"tenant": "a/b"}),
		"tenant is a list":  hs(map[string]any{"tenant": []string{"acme"}}),
		"context":           hs(map[string]any{"context": "private"}),
		"roles an object":   hs(map[string]any{"roles": map[string]any{"admin": true}}),
		"tools of nothing":  hs(map[string]any{"tools": []string{}}),
		"tools a number":    hs(map[string]any{"tools": 1}),
		"jti a list":        hs(map[string]any{"jti": []string{"a"}}),
		"jti with lines":    hs(map[string]any{"jti": "a\nb"}),

		"cut":          hs(nil)[:60],
		"two parts":    parts[0] + "." + parts[1],
		"four parts":   hs(nil) + ".x",
		"no signature": parts[0] + "." + parts[1] + ".",
		"padded":       parts[0] + "=." + parts[1] + "." + parts[2],
		"a line break": parts[0] + ".\n" + parts[1] + "." + parts[2],
		"loose bits":   looseBits(parts),
		"changed": parts[0] + "." + encode([]byte(strings.Replace(string(good), "caller", "admin", 1))) + "." +
			parts[2],
		"empty": "",
		"dots":  "..",
	} {
		id, err := authenticate(t, v, token)
		var refused *registry.Error
		if !errors.As(err, &refused) || refused.Code != registry.CodeUnauthenticated || id != (auth.Identity{}) {
			t.Errorf("%s: %+v, %v", name, id, err)
			continue
		}
		if refused.Message != "The token is invalid or expired." || refused.Cause == nil {
			t.Errorf("%s: the client gets %q, the log %v", name, refused.Message, refused.Cause)
		}
		for _, p := range strings.Split(token, ".") {
			if len(p) > 8 && strings.Contains(err.Error(), p) {
				t.Errorf("%s: the log has a part of the token: %v", name, err)
			}
		}
	}
}

// looseBits returns a token whose signature ends in bits that say nothing, set: the same bytes, another text.
func looseBits(parts []string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(parts[2]) - 1
	i := strings.IndexByte(alphabet, parts[2][last])
	return parts[0] + "." + parts[1] + "." + parts[2][:last] + string(alphabet[i|1])
}

// Within the leeway a clock may be off; the identity ends when the token is no longer accepted.
func TestLeewayAndEnd(t *testing.T) {
	c := newClock()
	v := open(t, c, nil)
	now := c.Now().Unix()
	token := sign(t, "HS256", secret, nil,
		c.claims(map[string]any{"iat": now + 29, "nbf": now + 29, "exp": now + 60}))
	for range 2 { // once by its signature, once remembered
		if _, err := authenticate(t, v, token); err != nil {
			t.Fatal(err)
		}
	}
	c.move(89 * time.Second)
	if id, err := authenticate(t, v, token); err != nil || id.Expired(c.Now()) {
		t.Errorf("within the leeway: %+v, %v", id, err)
	}
	c.move(time.Second)
	if _, err := authenticate(t, v, token); !errors.Is(err, registry.CodeUnauthenticated) {
		t.Errorf("a remembered token outlives its end: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	s := makeSigners()
	private, err := x509.MarshalPKCS8PrivateKey(s.rsa)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*jwt.Config){
		"no issuer":    func(c *jwt.Config) { c.Issuer = "" },
		"no audience":  func(c *jwt.Config) { c.Audience = "" },
		"no key":       func(c *jwt.Config) { c.Secret = "" },
		"short secret": func(c *jwt.Config) { c.Secret = "0123456789abcdef0123456789abcde" },
		"plain http":   func(c *jwt.Config) { c.KeySetURL = "http://id.example.com/keys" },
		"a password":   func(c *jwt.Config) { c.KeySetURL = "https://a:b@id.example.com/keys" },
		"no URL":       func(c *jwt.Config) { c.KeySetURL = "id.example.com" },
		"no key file":  func(c *jwt.Config) { c.KeyFile = fileOf(t, []byte("hello")) },
		"private key": func(c *jwt.Config) {
			c.KeyFile = fileOf(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
		},
		"another curve": func(c *jwt.Config) { c.KeyFile = fileOf(t, pemOf(t, &s.ec384.PublicKey)) },
		"shared secret": func(c *jwt.Config) {
			c.KeyFile = fileOf(t, []byte(`{"keys":[{"kty":"oct","k":"`+encode(secret)+`"}]}`))
		},
	} {
		cfg := jwt.Config{Settings: jwt.Settings{Issuer: issuer, Audience: audience, Secret: shared}}
		change(&cfg)
		if v, err := jwt.New(cfg); err == nil {
			v.Close()
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), string(secret[:8])) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
}

// A token that is known costs no signature check.
func BenchmarkKnownToken(b *testing.B) {
	c, s := newClock(), makeSigners()
	v := open(b, c, func(cfg *jwt.Config) { cfg.KeyFile = fileOf(b, pemOf(b, &s.rsa.PublicKey)) })
	token := sign(b, "RS256", s.rsa, nil, c.claims(nil))
	for b.Loop() {
		if _, err := authenticate(b, v, token); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever a token is, it is refused without a panic unless the secret signed it.
func FuzzVerifier(f *testing.F) {
	c := newClock()
	v := open(f, c, nil)
	good := sign(f, "HS256", secret, nil, c.claims(nil))
	f.Add(good)
	f.Add(raw(f, `{"alg":"none"}`, `{}`))
	f.Add(raw(f, `{"alg":"HS256","crit":[]}`, `{"exp":1e400}`))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		id, err := v.Authenticate(t.Context(), nil, token)
		if err == nil && token != good {
			t.Errorf("%q was accepted as %+v", token, id)
		}
		if err != nil && !errors.Is(err, registry.CodeUnauthenticated) {
			t.Errorf("%q: %v", token, err)
		}
		// Claims of strangers, signed: they may be accepted, but must not break anything.
		parts := strings.SplitN(token, ".", 2)
		if _, err := v.Authenticate(t.Context(), nil, raw(t, `{"alg":"HS256"}`, parts[0])); err != nil &&
			!errors.Is(err, registry.CodeUnauthenticated) {
			t.Errorf("%q: %v", token, err)
		}
	})
}
