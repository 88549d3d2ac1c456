package farhand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry/memory"
)

const adminToken = "a-token-of-the-admin-0123456789"

// createdKey is the answer that makes a key.
type createdKey struct{ ID, Key string }

// makeKey makes an API key.
func makeKey(t *testing.T, url, body string) createdKey {
	t.Helper()
	status, text := send(t, url+"/api/keys", body, adminToken)
	var k createdKey
	if err := json.Unmarshal([]byte(text), &k); err != nil || status != http.StatusCreated || k.Key == "" {
		t.Fatalf("make a key: %d %s", status, text)
	}
	return k
}

// remove sends a DELETE.
func remove(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// An admin makes, lists and revokes keys; the key is told once, and does what it was made for.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	url := start(t, farhand.Config{Token: adminToken})
	k := makeKey(t, url, `{"name":"ci","roles":["caller"],"user_id":"ann","tools":"camera_* torch","expires_in":3600}`)
	if !regexp.MustCompile(`^fhk_[0-9A-Za-z]{49}$`).MatchString(k.Key) {
		t.Error("the key has another form")
	}
	testkit.Eventually(t, "the key is usable", func() bool {
		status, _ := send(t, url+"/api/tools", "", k.Key)
		return status == http.StatusOK
	})
	status, list := send(t, url+"/api/keys", "", adminToken)
	if status != http.StatusOK || !strings.Contains(list, k.ID) || strings.Contains(list, k.Key) ||
		!strings.Contains(list, `"created_by":"token"`) {
		t.Errorf("list: %d %s", status, list)
	}
	if status, text := send(t, url+"/api/keys", "", k.Key); status != http.StatusForbidden {
		t.Errorf("a caller lists keys: %d %s", status, text)
	}
	for body, want := range map[string]int{
		`{"roles":["root"]}`:                    http.StatusBadRequest,
		`{"tools":" "}`:                         http.StatusBadRequest, // would be for all
		`{"role":"admin"}`:                      http.StatusBadRequest, // not a field
		`{"name":1}`:                            http.StatusBadRequest,
		`{"roles":"admin"}`:                     http.StatusBadRequest,
		`{"context":"anything"}`:                http.StatusBadRequest,
		`{"expires_in":0}`:                      http.StatusBadRequest,
		`{"expires_at":"2001-01-01T00:00:00Z"}`: http.StatusBadRequest,
		`{"expires_at":"soon"}`:                 http.StatusBadRequest,
		`{"expires_at":"2040-01-01T00:00:00Z","expires_in":1}`: http.StatusBadRequest,
		`{"tenant":"a}:{b"}`:                          http.StatusBadRequest,
		`{"name":"` + strings.Repeat("x", 300) + `"}`: http.StatusBadRequest,
		`[]`: http.StatusBadRequest,
	} {
		if status, text := send(t, url+"/api/keys", body, adminToken); status != want {
			t.Errorf("%.60s: %d %s", body, status, text)
		}
	}
	other := makeKey(t, url, `{"tenant":"acme","roles":["admin"],"tools":"camera_*"}`)
	for body, want := range map[string]int{
		`{"tools":"camera_*"}`:                      http.StatusCreated,
		`{"tenant":"acme","tools":"camera_*"}`:      http.StatusCreated,
		`{"tenant":"default","tools":"camera_*"}`:   http.StatusForbidden,
		`{"roles":["admin"],"tools":"camera_* sh"}`: http.StatusForbidden, // more than its own
		`{"roles":["admin"]}`:                       http.StatusForbidden,
	} {
		if status, text := send(t, url+"/api/keys", body, other.Key); status != want {
			t.Errorf("an admin of another tenant, %s: %d %s", body, status, text)
		}
	}
	short := makeKey(t, url, `{"tenant":"acme","roles":["admin"],"expires_in":3600}`)
	for body, most := range map[string]time.Duration{
		`{}`: time.Hour, `{"expires_in":7200}`: time.Hour, `{"expires_in":60}`: time.Minute,
	} {
		status, text := send(t, url+"/api/keys", body, short.Key)
		var made struct {
			Expires time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated ||
			time.Until(made.Expires) > most || time.Until(made.Expires) < most-time.Minute {
			t.Errorf("a key of an hour makes, for %s, %d %s", body, status, text)
		}
	}
	status, list = send(t, url+"/api/keys", "", other.Key)
	if status != http.StatusOK || strings.Contains(list, k.ID) {
		t.Errorf("the keys of another tenant: %d %s", status, list)
	}
	if status := remove(t, url+"/api/keys/"+k.ID, other.Key); status != http.StatusNotFound {
		t.Errorf("a key of another tenant is revoked: %d", status)
	}
	if status := remove(t, url+"/api/keys/"+k.ID, adminToken); status != http.StatusNoContent {
		t.Errorf("revoke: %d", status)
	}
	if status := remove(t, url+"/api/keys/"+k.ID, adminToken); status != http.StatusNotFound {
		t.Errorf("revoke again: %d", status)
	}
	testkit.Eventually(t, "the key is dead", func() bool {
		status, _ := send(t, url+"/api/tools", "", k.Key)
		return status == http.StatusUnauthorized
	})
	for body, want := range map[string]int{
		`{}`: http.StatusBadRequest, `{"user_id":""}`: http.StatusBadRequest, `{"user":"ann"}`: http.StatusBadRequest,
		`{"user_id":"a","jti":"b"}`: http.StatusBadRequest, `{"credential":"key:none"}`: http.StatusNotFound,
		`{"jti":"b"}`: http.StatusOK, `{"user_id":"nobody"}`: http.StatusOK,
	} {
		if status, text := send(t, url+"/api/revocations", body, adminToken); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// One tenant's admins do not fill the log that all pods read for all tenants: they are told to wait, and others are
// not.
func TestKeysAndRevocationsAreBounded(t *testing.T) {
	t.Parallel()
	url := start(t, farhand.Config{Token: adminToken})
	acme := makeKey(t, url, `{"tenant":"acme","roles":["admin"]}`)
	const burst, most = 1000, 3000
	status, text, done := 0, "", 0
	for ; done < most && status != http.StatusTooManyRequests; done++ {
		status, text = send(t, url+"/api/revocations", `{"jti":"the same"}`, acme.Key)
	}
	if done <= burst || done == most || !strings.Contains(text, `"rate_limited"`) ||
		!strings.Contains(text, "Nothing was changed") {
		t.Errorf("after %d: %d %s", done, status, text)
	}
	makeKey(t, url, `{}`)
}

// Without a token a gateway serves other machines only if everybody needs a key; then nobody is let in without one.
func TestKeysOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg  farhand.Config
		want string // part of the error
	}{
		"nothing":       {farhand.Config{Addr: "0.0.0.0:8080"}, "FARHAND_KEYS_ONLY"},
		"both":          {farhand.Config{KeysOnly: true, Token: adminToken}, "FARHAND_KEYS_ONLY"},
		"no store":      {farhand.Config{KeysOnly: true}, "FARHAND_REDIS_URL"},
		"a key's token": {farhand.Config{Token: "fhk_0123456789abcdef"}, "FARHAND_TOKEN"},
	} {
		if g, err := farhand.New(t.Context(), tc.cfg, quiet); err == nil {
			t.Errorf("%s: started", name)
			_ = g.Close(t.Context())
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	store := memory.New(memory.Options{})
	url := start(t, farhand.Config{Addr: "0.0.0.0:8080", KeysOnly: true}, farhand.WithStore(store, store.NewBus()))
	for _, token := range []string{"", "anything", adminToken} {
		if status, text := send(t, url+"/api/tools", "", token); status != http.StatusUnauthorized {
			t.Errorf("%q: %d %s", token, status, text)
		}
	}
	if _, err := farhand.LoadConfig([]string{"FARHAND_KEYS_ONLY=true"}); err != nil {
		t.Error(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, farhand.Config{Token: adminToken}); strings.Contains(text, adminToken) {
			t.Errorf("%s shows the token", format)
		}
	}
}

// slowModel says a word, and then nothing until its turn ends.
type slowModel struct{}

func (slowModel) Name() string { return "slow" }

func (slowModel) Generate(ctx context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
	emit(provider.Delta{Text: "well"})
	<-ctx.Done()
	return provider.Answer{}, ctx.Err()
}
