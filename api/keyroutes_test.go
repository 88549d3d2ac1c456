package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// newTrusting returns a fleet whose store has credentials, and in which those of withDeciders ask.
func newTrusting(t *testing.T) (f *fleet, pairings *pairing.Service) {
	t.Helper()
	f = newFleet(t, setup{change: func(cfg *api.Config) {
		withDeciders(cfg)
		store := cfg.Directory.(registry.Store)
		var err error
		if pairings, err = pairing.New(pairing.Config{Store: store, Mode: pairing.ModeOpen}); err != nil {
			t.Fatal(err)
		}
		cfg.Credentials, cfg.Pairing = store, pairings
	}})
	return f, pairings
}

func TestKeysOverHTTP(t *testing.T) {
	t.Parallel()
	f, _ := newTrusting(t)
	var made struct {
		ID, Key, Tenant, Tools string
		UserID                 string `json:"user_id"`
		ExpiresAt              string `json:"expires_at"`
	}
	body := `{"name":"ci","roles":["caller","approver"],"user_id":"ann","tools":"echo torch","expires_in":3600}`
	r := f.as(token, request{method: http.MethodPost, path: "/api/keys", body: body})
	r.into(&made)
	if r.status != http.StatusCreated || !strings.HasPrefix(made.Key, "fhk_") || made.UserID != "ann" ||
		made.Tools != "echo torch" || made.ExpiresAt == "" || r.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", r.status, r.body)
	}
	f.as(token, request{method: http.MethodPost, path: "/api/keys",
		body: `{"expires_at":"2100-01-31T12:00:00Z"}`}).want(http.StatusCreated)

	// A page that ends says where the next one begins; no listing has a key.
	var ids []string
	for cursor := ""; ; {
		var page struct {
			Keys []struct{ ID, Key string }
			Next string `json:"next_cursor"`
		}
		r := f.as(token, request{path: "/api/keys?limit=1" + cursor})
		r.into(&page)
		for _, k := range page.Keys {
			ids = append(ids, k.ID)
			if k.Key != "" {
				t.Errorf("listed: %s", r.body)
			}
		}
		if page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	if len(ids) != 2 {
		t.Errorf("listed: %v", ids)
	}
	if r := f.as(token, request{path: "/api/keys?user_id=nobody"}); !strings.Contains(string(r.body), `"keys":[]`) {
		t.Errorf("keys of nobody: %s", r.body)
	}
	if r := f.as("acme", request{path: "/api/keys"}); !strings.Contains(string(r.body), `"keys":[]`) {
		t.Errorf("keys of another tenant: %s", r.body)
	}

	f.as("acme", request{method: http.MethodDelete, path: "/api/keys/" + made.ID}).want(http.StatusNotFound)
	f.as(token, request{method: http.MethodDelete, path: "/api/keys/" + made.ID}).want(http.StatusNoContent)
	f.as(token, request{method: http.MethodDelete, path: "/api/keys/" + made.ID}).want(http.StatusNotFound)
	for _, what := range []string{`{"user_id":"ann"}`, `{"device_id":"phone"}`, `{"jti":"j1"}`} {
		f.as(token, request{method: http.MethodPost, path: "/api/revocations", body: what}).want(http.StatusOK)
	}
}

func TestRequestsForKeysThatMakeNoSense(t *testing.T) {
	t.Parallel()
	f, _ := newTrusting(t)
	for path, bodies := range map[string][]string{
		"/api/keys": {
			`{"name":1}`, `{"roles":"caller"}`, `{"roles":["king"]}`, `{"tools":"  "}`, `{"expires_in":0}`,
			`{"expires_in":"1h"}`, `{"expires_in":99999999999}`, `{"expires_at":"soon"}`, `{"expires_at":7}`,
			`{"expires_in":60,"expires_at":"2100-01-31T12:00:00Z"}`, `{"expires_at":"2001-01-31T12:00:00Z"}`,
			`{"colour":"red"}`, `[]`, `{"roles":[` + strings.Repeat(`"caller",`, 16) + `"caller"]}`,
		},
		"/api/revocations": {
			`{}`, `{"user_id":""}`, `{"user_id":7}`, `{"user_id":"ann","jti":"j"}`, `{"who":"ann"}`,
			`{"jti":"` + strings.Repeat("x", 2000) + `"}`,
		},
	} {
		for _, body := range bodies {
			r := f.as(token, request{method: http.MethodPost, path: path, body: body})
			if r.status != http.StatusBadRequest {
				t.Errorf("%s %.80s: %d %s", path, body, r.status, r.body)
			}
		}
	}
	f.as(token, request{path: "/api/keys?cursor=x"}).want(http.StatusBadRequest)
	f.as(token, request{path: "/api/keys?limit=0"}).want(http.StatusBadRequest)
}
