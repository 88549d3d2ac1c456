package farhand_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
)

// operated is pods of one fleet, with the key of an operator.
type operated struct {
	*testing.T
	urls     []string
	operator string
}

func newOperated(t *testing.T, pods int, cfg farhand.Config) *operated {
	t.Helper()
	redis := redistest.Start(t)
	o := &operated{T: t}
	cfg.Token, cfg.RedisURL = adminToken, farhand.Secret("redis://"+redis.Addr())
	cfg.Builtins = []string{"time"}
	for range pods {
		o.urls = append(o.urls, start(t, cfg, farhand.WithModel(&askedModel{})))
	}
	o.operator = makeKey(t, o.urls[0], `{"roles":["operator"]}`).Key
	return o
}

// put sends a PUT and returns the status and the body.
func (o *operated) put(path, body, token string) (int, string) {
	o.Helper()
	w := &world{T: o.T, url: o.urls[0]}
	return w.ask(line{route: "PUT " + path, body: body}, http.MethodPut, "", token)
}

// firstKey creates the first key of a tenant.
func (o *operated) firstKey(tenant string) string {
	o.Helper()
	status, text := send(o.T, o.urls[0]+"/api/tenants/"+tenant+"/keys", `{"name":"first"}`, o.operator)
	var k createdKey
	if err := json.Unmarshal([]byte(text), &k); err != nil || status != http.StatusCreated {
		o.Fatalf("%d %s", status, text)
	}
	return k.Key
}

// time calls the tool time on a pod, and returns the status and the body.
func (o *operated) time(pod int, token string) (int, string) {
	o.Helper()
	return send(o.T, o.urls[pod]+"/api/tools/time/call", `{}`, token)
}

// An operator makes the first key of a tenant and no other, and cannot get more rights with anything it may do.
func TestOperatorsCannotEscalate(t *testing.T) {
	t.Parallel()
	o := newOperated(t, 1, farhand.Config{})
	url := o.urls[0]
	status := func(path, body, token string) int {
		t.Helper()
		status, _ := send(t, url+path, body, token)
		return status
	}
	// Only the one token makes operators, and their keys are for nothing else.
	defaultAdmin := makeKey(t, url, `{"roles":["admin"]}`).Key
	for _, token := range []string{defaultAdmin, o.operator} {
		if got := status("/api/keys", `{"roles":["operator"]}`, token); got != http.StatusForbidden {
			t.Errorf("a key of an operator: %d", got)
		}
	}
	for _, body := range []string{
		`{"roles":["operator","admin"]}`, `{"roles":["operator"],"tenant":"acme"}`, `{"roles":["operator"],"user_id":"a"}`,
		`{"roles":["operator"],"tools":"*"}`, `{"roles":["operator"],"device_id":"d"}`,
	} {
		if got := status("/api/keys", body, adminToken); got != http.StatusBadRequest {
			t.Errorf("%s: %d", body, got)
		}
	}
	// The first key is an admin's of that tenant, can be made again before it is used, and never after.
	for _, body := range []string{
		`{"roles":["operator"]}`, `{"tenant":"default"}`, `{"user_id":"a"}`, `{"expires_in":-1}`,
	} {
		if got := status("/api/tenants/acme/keys", body, o.operator); got != http.StatusBadRequest {
			t.Errorf("%s: %d", body, got)
		}
	}
	for _, tenant := range []string{"default", "%2e%2e", "a%2fb", "a b"} {
		if got := status("/api/tenants/"+tenant+"/keys", `{}`, o.operator); got/100 != 4 {
			t.Errorf("%s: %d", tenant, got)
		}
	}
	admin := o.firstKey("acme")
	if got := status("/api/keys", "", admin); got != http.StatusOK {
		t.Errorf("the first key is no admin's: %d", got)
	}
	for _, key := range []string{o.operator, admin, defaultAdmin, adminToken} {
		if got := status("/api/tenants/acme/keys", `{}`, key); got != http.StatusForbidden {
			t.Errorf("a second key: %d", got)
		}
	}
	// A tenant in use has no first key, also if its keys are gone, or if it never had one.
	if _, text := send(t, url+"/api/keys", "", admin); strings.Count(text, `"id"`) != 1 {
		t.Errorf("%s", text)
	}
	var list struct{ Keys []struct{ ID string } }
	_, text := send(t, url+"/api/keys", "", admin)
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the tenant counts as used", func() bool {
		_, text := send(t, url+"/api/tenants/acme", "", o.operator)
		return strings.Contains(text, `"used":true`)
	})
	if got := remove(t, url+"/api/keys/"+list.Keys[0].ID, admin); got != http.StatusNoContent {
		t.Fatalf("%d", got)
	}
	if got := status("/api/tenants/acme/keys", `{}`, o.operator); got != http.StatusForbidden {
		t.Errorf("the first key of a tenant in use: %d", got)
	}
	// The tenant sees in its audit log what an operator did.
	again := makeKey(t, url, `{"roles":["admin"],"tenant":"acme"}`).Key
	if code, text := o.put("/api/tenants/acme/budget", `{"tenant":{"calls":7}}`, o.operator); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	testkit.Eventually(t, "the operator's acts are in the tenant's log", func() bool {
		_, text := send(t, url+"/api/audit", "", again)
		return strings.Contains(text, "tenant.key") && strings.Contains(text, "tenant.budget")
	})
}

// A name in the tokens of an identity provider makes an operator only if it is set, and only in the default tenant.
func TestOperatorsOfAnIdentityProvider(t *testing.T) {
	t.Parallel()
	token := func(claims map[string]any) string {
		all := map[string]any{"iss": "issuer", "aud": "farhand", "sub": "olga", "exp": time.Now().Add(time.Hour).Unix()}
		for name, value := range claims {
			all[name] = value
		}
		return signed(t, matrixSecret, all)
	}
	for _, c := range []struct {
		role   string
		claims map[string]any
		want   int
	}{
		{"", map[string]any{"roles": "operator"}, http.StatusForbidden},
		{"", map[string]any{"roles": "operator admin"}, http.StatusForbidden},
		{"fleet-ops", map[string]any{"roles": "operator"}, http.StatusForbidden},
		{"fleet-ops", map[string]any{"roles": "fleet-ops"}, http.StatusOK},
		{"operator", map[string]any{"roles": []string{"operator", "caller"}}, http.StatusOK},
		{"fleet-ops", map[string]any{"roles": "fleet-ops", "tenant": "acme"}, http.StatusForbidden},
	} {
		url := start(t, farhand.Config{Token: adminToken, JWT: jwt.Settings{
			Issuer: "issuer", Audience: "farhand", Secret: matrixSecret, Claims: jwt.ClaimNames{Operator: c.role},
		}})
		if status, text := send(t, url+"/api/tenants", "", token(c.claims)); status != c.want {
			t.Errorf("%q, %v: %d %s", c.role, c.claims, status, text)
		}
	}
}

// A budget that is spent on one pod is spent on all, over every API; a new day is another test's.
func TestABudgetHoldsOverAPIs(t *testing.T) {
	t.Parallel()
	prices := filepath.Join(t.TempDir(), "prices.json")
	const text = `{"version":1,"models":{"*":{"input":1000000,"output":1000000}}}`
	if err := os.WriteFile(prices, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := farhand.Config{}
	cfg.ModelPrices = prices
	o := newOperated(t, 2, cfg)
	admin := o.firstKey("acme")
	code, answer := o.put("/api/tenants/acme/budget", `{"tenant":{"calls":6,"cost_micros":1}}`, o.operator)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	for _, url := range o.urls {
		testkit.Eventually(t, "the budget is in force", func() bool {
			_, text := send(t, url+"/api/limits", "", admin)
			return strings.Contains(text, `"limits":{"calls":6,`)
		})
	}
	for n := range 6 {
		if status, text := o.time(n%2, admin); status != http.StatusOK {
			t.Fatalf("call %d: %d %s", n, status, text)
		}
	}
	for pod := range o.urls {
		status, text := o.time(pod, admin)
		if status != http.StatusTooManyRequests || !strings.Contains(text, `"budget_exceeded"`) ||
			!strings.Contains(text, `"dispatched":"no"`) || !strings.Contains(text, `"retryable":false`) {
			t.Errorf("pod %d: %d %s", pod, status, text)
		}
		status, text = send(t, o.urls[pod]+"/api/tools/time/call", `{"mode":"async"}`, admin)
		if status != http.StatusTooManyRequests {
			t.Errorf("asynchronous: %d %s", status, text)
		}
		_, text = send(t, o.urls[pod]+"/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"time","arguments":{}}}`, admin)
		if !strings.Contains(text, "budget") {
			t.Errorf("over MCP: %s", text)
		}
	}
	if status, text := o.time(0, adminToken); status != http.StatusOK {
		t.Errorf("another tenant: %d %s", status, text)
	}
	const ask = `{"model":"asked","messages":[{"role":"user","content":"hi"}]}`
	if status, text := send(t, o.urls[0]+"/v1/chat/completions", ask, admin); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	testkit.Eventually(t, "the model's cost is known on both pods", func() bool {
		one, text := send(t, o.urls[0]+"/v1/chat/completions", ask, admin)
		two, _ := send(t, o.urls[1]+"/v1/chat/completions", ask, admin)
		return one == http.StatusTooManyRequests && two == one && strings.Contains(text, "budget_exceeded")
	})
	defer connect(t, o.urls[0], "s", admin).Close()
	status, answer := send(t, o.urls[1]+"/api/sessions/s/messages", `{"content":"hi"}`, admin)
	if status != http.StatusTooManyRequests {
		t.Errorf("chat: %d %s", status, answer)
	}
	if _, text := send(t, o.urls[1]+"/api/limits", "", admin); !strings.Contains(text, `"spent":{"calls":6,`) {
		t.Errorf("%s", text)
	}
	testkit.Eventually(t, "the operator sees it, and the tenant hears of it", func() bool {
		_, shown := send(t, o.urls[0]+"/api/tenants/acme", "", o.operator)
		_, log := send(t, o.urls[0]+"/api/audit", "", admin)
		return strings.Contains(shown, `"today":{"calls":6,`) && strings.Contains(shown, `"days":[{"day":"2`) &&
			strings.Contains(log, "budget.spent")
	})
}

// A list of ten thousand tenants is read in pages, each of which takes a few requests of Redis.
func TestTenThousandTenants(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	conn, err := redisstore.Dial(t.Context(), redisstore.Options{URL: "redis://" + redis.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const tenants = 10_000
	var names []string
	for i := range tenants {
		names = append(names, fmt.Sprintf("t%05d", i))
	}
	if err := conn.Store().NoteTenants(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	url := start(t, farhand.Config{Token: adminToken, RedisURL: farhand.Secret("redis://" + redis.Addr())})
	operator := makeKey(t, url, `{"roles":["operator"]}`).Key
	var seen []string
	pages := 0
	for cursor := ""; ; pages++ {
		status, text := send(t, url+"/api/tenants?limit=1000&cursor="+cursor, "", operator)
		if cursor == "" {
			status, text = send(t, url+"/api/tenants?limit=1000", "", operator)
		}
		var page struct {
			Tenants []struct{ Tenant string }
			Next    string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		for _, row := range page.Tenants {
			seen = append(seen, row.Tenant)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	seen = slices.DeleteFunc(seen, func(name string) bool { return name == "default" })
	if !slices.Equal(seen, names) {
		t.Errorf("%d tenants on %s pages", len(seen), strconv.Itoa(pages))
	}
}
