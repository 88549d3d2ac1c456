package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// TestSecretsStayInside: a pod that logs all it can is sent canaries wherever something secret or private may stand. No
// line of its log has one of them. No answer names the Redis behind the pod, or has a piece of the program's stack,
// also while Redis is away. Nothing for debugging is served.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	canaries := map[string]string{
		"password of Redis": "canary-1-redis", "key of the model": "canary-2-model", "arguments": "canary-3-arguments",
		"output": "canary-4-output", "wrong token": "canary-5-wrong-token-0123456789", "message": "canary-6-message",
		"idempotency key": "canary-7-key", "secret of tokens": "canary-8-secret-of-an-issuer-0123456789",
	}
	server := redistest.Start(t, "--requirepass", canaries["password of Redis"])
	p := startPod(t, "FARHAND_REDIS_URL=redis://:"+canaries["password of Redis"]+"@"+server.Addr(),
		"FARHAND_LOG_LEVEL=debug", "FARHAND_LOG_FORMAT=json", "FARHAND_MODEL=none",
		"FARHAND_JWT_ISSUER=issuer", "FARHAND_JWT_AUDIENCE=farhand", "FARHAND_JWT_SECRET="+canaries["secret of tokens"],
		"FARHAND_MODEL_KEY="+canaries["key of the model"],
		"FARHAND_MODEL_URL=http://"+testkit.FreeAddr(t)+"/v1")
	startRawDevice(t, "phone", []string{p.url}, func(json.RawMessage) string { return canaries["output"] })
	eventually(t, waitLimit, "the device is listed", func() bool { return toolsOf(t, p.url)["phone"] == 1 })

	// An API key, which only the answer that makes it has, and one that is none.
	_, made := request(t, http.MethodPost, p.url+"/api/keys", `{"name":"canary"}`)
	var key struct{ Key string }
	if err := json.Unmarshal(made, &key); err != nil || key.Key == "" {
		t.Fatalf("no key was made: %v", err)
	}
	canaries["API key"], canaries["key of nobody"] = key.Key, auth.NewSecret(registry.CredentialKey)

	// A paired device: its code and the secret of its request are used up, its credential is good.
	var asked struct{ ID, Code, Secret string }
	if _, raw := request(t, http.MethodPost, p.url+"/pair",
		`{"device_id":"canary-device"}`); unmarshal(raw, &asked) != nil {
		t.Fatalf("not asked: %s", raw)
	}
	request(t, http.MethodPost, p.url+"/api/pairings", fmt.Sprintf(`{"code":%q,"decision":"approve"}`, asked.Code))
	var paired struct{ Credential string }
	_, raw := request(t, http.MethodPost, p.url+"/pair/status", fmt.Sprintf(`{"secret":%q}`, asked.Secret))
	if err := unmarshal(raw, &paired); err != nil || paired.Credential == "" {
		t.Fatalf("not paired: %v", err)
	}
	canaries["code"], canaries["secret of a request"] = asked.Code, asked.Secret
	canaries["code without a dash"] = strings.ReplaceAll(asked.Code, "-", "")
	canaries["credential of a device"] = paired.Credential

	// JSON Web Tokens: one that is taken, one that has expired, and one with a wrong signature.
	for what, life := range map[string]time.Duration{
		"token of a user": time.Hour, "token that has expired": -time.Hour,
	} {
		canaries[what] = testkit.JWT(t, "HS256", []byte(canaries["secret of tokens"]), nil, map[string]any{
			"iss": "issuer", "aud": "farhand", "sub": "ann", "roles": "caller", "exp": time.Now().Add(life).Unix(),
		})
	}
	good := canaries["token of a user"]
	canaries["forged token"] = good[:len(good)-20] + "canary89canary89abcd"

	// The token in the place where proxies would log it, and tokens that are wrong.
	ws := "ws" + strings.TrimPrefix(p.url, "http") + "/ws/chat?session_id=query&token="
	conn, _, err := websocket.DefaultDialer.Dial(ws+fleetToken, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if conn, _, err := websocket.DefaultDialer.Dial(ws+canaries["wrong token"], nil); err == nil {
		conn.Close()
		t.Error("a wrong token is taken")
	}
	var answers strings.Builder
	ask := func(method, path, body, token string) int {
		req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return 0
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		answers.Write(text)
		return resp.StatusCode
	}
	call := fmt.Sprintf(`{"args":{"x":%q},"idempotency_key":%q}`, canaries["arguments"], canaries["idempotency key"])
	everything := func() {
		ask(http.MethodGet, "/api/tools", "", canaries["wrong token"])
		ask(http.MethodGet, "/api/tools", "", canaries["API key"])
		for _, what := range []string{"token of a user", "token that has expired", "forged token"} {
			ask(http.MethodGet, "/api/calls", "", canaries[what])
		}
		ask(http.MethodGet, "/api/keys", "", fleetToken)
		ask(http.MethodGet, "/api/tools", "", canaries["credential of a device"])
		ask(http.MethodPost, "/pair/challenge", "", canaries["credential of a device"])
		ask(http.MethodPost, "/pair/status", fmt.Sprintf(`{"secret":%q}`, canaries["secret of a request"]), "")
		ask(http.MethodPost, "/api/pairings", fmt.Sprintf(`{"code":%q,"decision":"approve"}`, asked.Code), fleetToken)
		for _, path := range []string{"/api/devices", "/api/devices/canary-device", "/api/pairings", "/api/audit"} {
			ask(http.MethodGet, path, "", fleetToken)
		}
		ask(http.MethodGet, "/api/tools", "", canaries["key of nobody"])
		ask(http.MethodGet, "/api/tools", "", canaries["API key"]+"x")
		ask(http.MethodPost, "/api/sessions/phone/tools/work/call", call, fleetToken)
		ask(http.MethodPost, "/api/sessions/phone/tools/work/call",
			fmt.Sprintf(`{"args":{"x":%q}}`, canaries["arguments"]), fleetToken)
		ask(http.MethodPost, "/api/sessions/phone/messages", fmt.Sprintf(`{"content":%q}`, canaries["message"]),
			fleetToken)
		ask(http.MethodPost, "/api/sessions/nobody/tools/work/call", call+"trailing", fleetToken)
		for _, path := range []string{"/api/tools", "/api/sessions", "/api/calls", "/api/calls/none", "/readyz",
			"/openapi.json"} {
			ask(http.MethodGet, path, "", fleetToken)
		}
	}
	everything()
	if status := ask(http.MethodGet, "/api/tools", "", canaries["token of a user"]); status != http.StatusOK {
		t.Errorf("a good token: %d", status)
	}
	server.Pause()
	everything()
	server.Resume()

	for what, canary := range canaries {
		if what == "output" || what == "message" {
			continue // they are for the caller
		}
		if strings.Contains(answers.String(), canary) {
			t.Errorf("an answer has the %s", what)
		}
	}
	for _, inside := range []string{server.Addr(), "goroutine ", ".go:", "EVALSHA", "fh:{"} {
		if strings.Contains(answers.String(), inside) {
			t.Errorf("an answer has %q", inside)
		}
	}
	for what, canary := range canaries {
		if strings.Contains(p.out.String(), canary) {
			t.Errorf("the log has the %s", what)
		}
	}
	if strings.Contains(p.out.String(), fleetToken) {
		t.Error("the log has the token")
	}
	const dump = `local all = {} for _, k in ipairs(redis.call('KEYS', 'fh:*credential*')) do all[#all + 1] = k
		if redis.call('TYPE', k).ok == 'hash' then all[#all + 1] = table.concat(redis.call('HGETALL', k), ' ') end
		end return table.concat(all, ' ')`
	stored, err := server.Command("--no-auth-warning", "-a", canaries["password of Redis"], "EVAL", dump, "0")
	if err != nil || !strings.Contains(stored, "canary") || strings.Contains(stored, key.Key) ||
		strings.Contains(stored, paired.Credential) {
		t.Errorf("Redis has a key, or nothing of it: %v", err)
	}
	if len(p.out.String()) == 0 {
		t.Error("the log is empty, so nothing was looked at")
	}
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/debug/pprof/heap"} {
		if status := ask(http.MethodGet, path, "", fleetToken); status != http.StatusNotFound {
			t.Errorf("%s is answered with %d", path, status)
		}
	}
}
