package wake

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/farhand/farhand/internal/pushtest"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// answers plays a push service: check sees each request, then it gets the next answer; the last one stays.
type answers struct {
	t     *testing.T
	check func(r *http.Request, body []byte)
	next  []func(http.ResponseWriter)
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	a.check(r, body)
	answer := a.next[0]
	if len(a.next) > 1 {
		a.next = a.next[1:]
	}
	answer(w)
}

func status(code int, body string, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func open(t *testing.T, cfg Config) *Service {
	t.Helper()
	cfg.Store, cfg.AllowPrivate = memory.New(memory.Options{}), true
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func privatePEM(key any) secret.Text {
	bytes := must(x509.MarshalPKCS8PrivateKey(key))
	return secret.Text(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}))
}

// wantResults pushes once for each answer.
func wantResults(t *testing.T, s *Service, w registry.Wake, want ...result) {
	t.Helper()
	for i, res := range want {
		need := Need{Calls: 2, Tools: []string{"camera"}}
		got := s.push(t.Context(), registry.WakeRecord{DeviceID: device, Wake: w}, need)
		if got != res {
			t.Errorf("push %d: %+v, want %+v", i, got, res)
		}
	}
}

func TestWebhook(t *testing.T) {
	a := &answers{t: t, next: []func(http.ResponseWriter){
		status(204, ""), status(404, ""), status(410, ""), status(429, "", "Retry-After", "7"),
		status(302, "", "Location", "/x"),
	}}
	a.check = func(r *http.Request, body []byte) {
		if err := testkit.VerifyWebhook(webhookSecret, r.Header, body); err != nil {
			t.Error(err)
		}
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil || len(m) != 3 || m["type"] != "device.wake" ||
			m["device_id"] != device {
			t.Errorf("body %s, %v", body, err)
		}
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	s := open(t, Config{Settings: Settings{WebhookSecret: webhookSecret}})
	wantResults(t, s, registry.Wake{Kind: registry.WakeWebhook, URL: server.URL}, result{outcome: Sent},
		result{outcome: Refused, reason: "status 404"}, result{outcome: Gone, reason: "status 410"},
		result{outcome: Retry, reason: "status 429", retryAfter: 7 * time.Second},
		result{outcome: Refused, reason: "status 302"})
}

func TestWebPush(t *testing.T) {
	key := must(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).ECDH())
	vapid := base64.RawURLEncoding.EncodeToString(key.Bytes())
	s := open(t, Config{Settings: Settings{
		VAPIDKey: secret.Text(vapid), VAPIDSubject: "mailto:ops@example.com", Content: true,
	}})
	sub := pushtest.NewSubscription()
	a := &answers{t: t}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.check = func(r *http.Request, body []byte) {
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		p, err := sub.Open(r, s.Offer().VAPIDPublicKey, server.URL)
		if err != nil {
			t.Error(err)
			return
		}
		var m message
		if err := json.Unmarshal(p.Text, &m); err != nil || m.Calls != 2 || m.Tools[0] != "camera" ||
			m.DeviceID != device {
			t.Errorf("%s, %v", p.Text, err)
		}
		if p.Claims["sub"] != "mailto:ops@example.com" || p.Header.Get("Urgency") != "high" ||
			p.Header.Get("Topic") != collapse {
			t.Errorf("claims %v, header %v", p.Claims, p.Header)
		}
	}
	p256dh, auth := sub.Keys()
	for _, kind := range []registry.WakeKind{registry.WakeWebPush, registry.WakeUnifiedPush} {
		keys := &registry.WakeKeys{P256DH: p256dh, Auth: auth}
		w := registry.Wake{Kind: kind, Endpoint: server.URL + "/push/1", Keys: keys}
		if _, err := s.Register(t.Context(), "acme", "", device, w); err != nil {
			t.Error(err)
		}
		a.next = []func(http.ResponseWriter){
			status(201, ""), status(404, ""), status(410, ""), status(500, "x"), status(413, ""),
		}
		wantResults(t, s, w, result{outcome: Sent}, result{outcome: Gone, reason: "status 404"},
			result{outcome: Gone, reason: "status 410"}, result{outcome: Retry, reason: "status 500"},
			result{outcome: Refused, reason: "status 413"})
	}
}

func TestAPNs(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	point := base64.RawURLEncoding.EncodeToString(must(key.PublicKey.Bytes()))
	var tokens []string
	a := &answers{t: t, next: []func(http.ResponseWriter){
		status(200, ""), status(410, `{"reason":"Unregistered"}`), status(400, `{"reason":"BadDeviceToken"}`),
		status(400, `{"reason":"DeviceTokenNotForTopic"}`), status(429, `{"reason":"TooManyRequests"}`),
		status(403, `{"reason":"ExpiredProviderToken"}`), status(200, ""),
	}}
	a.check = func(r *http.Request, body []byte) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		tokens = append(tokens, token)
		var claims map[string]any
		if err := pushtest.VerifyES256(token, point, &claims); err != nil || claims["iss"] != "TEAM" {
			t.Errorf("token: %v, %v", claims, err)
		}
		head := string(must(base64.RawURLEncoding.DecodeString(strings.SplitN(token, ".", 2)[0])))
		if r.ProtoMajor != 2 || r.URL.Path != "/3/device/abc123" || !strings.Contains(head, `"kid":"KEY"`) ||
			r.Header.Get("Apns-Topic") != "com.example.app" || r.Header.Get("Apns-Push-Type") != "alert" {
			t.Errorf("%s %s %v, token %s", r.Proto, r.URL, r.Header, head)
		}
		if strings.Contains(string(body), "camera") || !strings.Contains(string(body), `"content-available":1`) {
			t.Errorf("body %s", body)
		}
	}
	server := httptest.NewUnstartedServer(a)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	s := open(t, Config{Roots: roots, Settings: Settings{
		APNSKey: privatePEM(key), APNSKeyID: "KEY", APNSTeamID: "TEAM", APNSURL: server.URL,
	}})
	w := registry.Wake{Kind: registry.WakeAPNs, Token: "abc123", Topic: "com.example.app"}
	wantResults(t, s, w, result{outcome: Sent}, result{outcome: Gone, reason: "status 410 (Unregistered)"},
		result{outcome: Gone, reason: "status 400 (BadDeviceToken)"},
		result{outcome: Refused, reason: "status 400 (DeviceTokenNotForTopic)"},
		result{outcome: Retry, reason: "status 429 (TooManyRequests)"}, result{outcome: Sent})
	if tokens[0] != tokens[5] || tokens[5] == tokens[6] {
		t.Error("the token is not shared until it expires")
	}
}

func TestFCM(t *testing.T) {
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	exchanges := 0
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		exchanges++
		if r.ProtoMajor != 1 {
			t.Errorf("the token is asked for over %s", r.Proto)
		}
		token := must(jwt.ParseSigned(r.PostFormValue("assertion"), []jose.SignatureAlgorithm{jose.RS256}))
		var claims jwt.Claims
		var more struct {
			Scope string `json:"scope"`
		}
		err := token.Claims(&key.PublicKey, &claims, &more)
		if err == nil {
			err = claims.Validate(jwt.Expected{
				Issuer: "push@example.iam", AnyAudience: jwt.Audience{server.URL + "/token"}, Time: time.Now(),
			})
		}
		if err != nil || more.Scope != fcmScope ||
			r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			t.Errorf("exchange: %v, %+v, %v", err, claims, more)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": "ya29." + strings.Repeat("x", exchanges), "expires_in": 3599,
		})
	})
	problem := func(code int, state, detail string) func(http.ResponseWriter) {
		return status(code, `{"error":{"status":"`+state+`","details":[{"errorCode":"`+detail+`"}]}}`, "Retry-After", "60")
	}
	a := &answers{t: t, next: []func(http.ResponseWriter){
		status(200, "{}"), status(401, "{}"), status(200, "{}"), problem(404, "NOT_FOUND", "UNREGISTERED"),
		problem(404, "NOT_FOUND", ""), problem(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
		problem(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"),
	}}
	a.check = func(r *http.Request, body []byte) {
		var sent struct {
			Message struct {
				Token   string
				Data    map[string]string
				Android struct{ Priority string }
			}
		}
		if r.ProtoMajor != 1 {
			t.Errorf("the push is sent over %s", r.Proto)
		}
		err := json.Unmarshal(body, &sent)
		if m := sent.Message; err != nil || m.Token != "t:1" || m.Data["device_id"] != device || len(m.Data) != 2 ||
			m.Android.Priority != "HIGH" {
			t.Errorf("%s, %v", body, err)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer ya29."+strings.Repeat("x", exchanges) {
			t.Errorf("authorization %s", got)
		}
	}
	mux.Handle("POST /v1/projects/example/messages:send", a)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	account := must(json.Marshal(account{
		ProjectID: "example", KeyID: "1", Email: "push@example.iam", TokenURL: server.URL + "/token",
		PrivateKey: string(privatePEM(key)),
	}))
	s := open(t, Config{Roots: roots, FCM: server.URL, Settings: Settings{FCMCredentials: secret.Text(account)}})
	wantResults(t, s, registry.Wake{Kind: registry.WakeFCM, Token: "t:1"}, result{outcome: Sent}, result{outcome: Sent},
		result{outcome: Gone, reason: "status 404 (NOT_FOUND)"}, result{outcome: Refused, reason: "status 404 (NOT_FOUND)"},
		result{outcome: Refused, reason: "status 400 (INVALID_ARGUMENT)"},
		result{outcome: Retry, reason: "status 429 (RESOURCE_EXHAUSTED)", retryAfter: time.Minute})
	if exchanges != 2 {
		t.Errorf("%d exchanges, want one, and one after 401", exchanges)
	}
}

// A token that no header can carry, or that is said to last for centuries, does not end all pushes until the pod is
// restarted.
func TestTokensOfAPushServiceAreChecked(t *testing.T) {
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	a := &account{key: key, Email: "push@example.iam", TokenURL: server.URL}
	for said, want := range map[string]time.Duration{
		`"a","expires_in":3600`:                 time.Hour - spareTime,
		`"a","expires_in":9223372036854775807`:  24*time.Hour - spareTime,
		`"a","expires_in":10000000000`:          24*time.Hour - spareTime, // would overflow
		`"a","expires_in":-9223372036854775807`: -spareTime,
		`"a\nb","expires_in":3600`:              0,
		`"a\u0000","expires_in":3600`:           0,
	} {
		answer = `{"access_token":` + said + `}`
		if _, life, err := a.exchange(t.Context(), server.Client()); life != want || (err != nil) != (want == 0) {
			t.Errorf("%s: %v, %v", said, life, err)
		}
	}
}

// A device cannot make the gateway send requests to the gateway's own machine or network: neither when it registers
// such a URL, nor by a name that leads there later, nor by a redirect.
func TestDevicesCannotReachPrivateNetworks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("reached: %s", r.URL)
	}))
	t.Cleanup(server.Close)
	s, err := New(Config{Store: memory.New(memory.Options{}), Settings: Settings{WebhookSecret: webhookSecret}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	for _, url := range []string{
		server.URL, "https://127.0.0.1/", "https://localhost:8080/", "https://169.254.169.254/latest/", "https://[::1]/",
		"https://10.0.0.1/", "https://2130706433/", "https://metadata.google.internal/", "http://example.com/",
		"https://user:pass@example.com/", "file:///etc/passwd", "gopher://example.com/",
	} {
		w := registry.Wake{Kind: registry.WakeWebhook, URL: url}
		if _, err := s.Register(t.Context(), "acme", "", device, w); !errors.Is(err, registry.CodeInvalidRequest) {
			t.Errorf("%s: %v", url, err)
		}
	}
	past := registry.Wake{Kind: registry.WakeWebhook, URL: server.URL} // as if a name led there
	if res := s.push(t.Context(), registry.WakeRecord{Wake: past}, Need{}); res.outcome != Retry ||
		res.reason != reasonNotAllowed || !strings.Contains(res.logged(), "refused") {
		t.Errorf("%+v", res)
	}
}

// The outcome of Close: a push that is being sent ends with the caller's context.
func TestCloseEndsPushes(t *testing.T) {
	reached, end := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(reached); <-end }))
	t.Cleanup(func() { close(end); server.Close() })
	s, err := New(Config{
		Store: memory.New(memory.Options{}), AllowPrivate: true, Settings: Settings{WebhookSecret: webhookSecret},
	})
	if err != nil {
		t.Fatal(err)
	}
	register := registry.Wake{Kind: registry.WakeWebhook, URL: server.URL}
	if _, err := s.Register(t.Context(), "acme", "", device, register); err != nil {
		t.Fatal(err)
	}
	s.Wake(t.Context(), "acme", keyOf("", device))
	testkit.Receive(t, "the push", reached)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(ctx)
	s.Wake(t.Context(), "acme", keyOf("anna", device))
}

func TestSettings(t *testing.T) {
	for _, bad := range []Settings{
		{WebhookSecret: "secret"}, {VAPIDKey: "x", VAPIDSubject: "mailto:a@example.com"}, {FCMCredentials: "{}"},
		{APNSKey: "x", APNSKeyID: "k", APNSTeamID: "t", APNSURL: "https://api.push.apple.com"},
	} {
		if len(bad.Check()) == 0 {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if found := (Settings{}).Check(); len(found) > 0 {
		t.Error(found)
	}
}
