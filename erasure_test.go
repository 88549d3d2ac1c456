package farhand_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/jwt"
	"github.com/farhand/farhand/redisstore/redistest"
)

// dumped returns each key of Redis with its values as a text.
func dumped(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	ctx, all := context.Background(), make(map[string]string)
	keys := c.Keys(ctx, "*").Val()
	for _, key := range keys {
		var v any
		switch kind := c.Type(ctx, key).Val(); kind {
		case "string":
			v = c.Get(ctx, key).Val()
		case "hash":
			v = c.HGetAll(ctx, key).Val()
		case "list":
			v = c.LRange(ctx, key, 0, -1).Val()
		case "zset":
			v = c.ZRange(ctx, key, 0, -1).Val()
		case "set":
			v = c.SMembers(ctx, key).Val()
		case "stream":
			v = c.XRange(ctx, key, "-", "+").Val()
		case "none": // it has expired
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		all[key] = fmt.Sprint(v)
	}
	return all
}

// naming returns the keys that contain one of the texts, in their name or their values.
func naming(all map[string]string, texts ...string) map[string]bool {
	found := make(map[string]bool)
	for key, value := range all {
		for _, text := range texts {
			if strings.Contains(key, text) || strings.Contains(value, text) {
				found[key] = true
			}
		}
	}
	return found
}

// keptOf are the keys that a receipt names: revocations, the feed, the audit logs (pairing begins in the default
// tenant's), rate limits, and what tells of sessions that just closed.
var keptOf = regexp.MustCompile(`^fh:(changes|\{acme:revoked\}:user|\{(acme|default):audit\}|acme:activity|` +
	`\{fh:acme:activity\}:.*|acme:(away:)?user:.*|acme:budget:.*|\{acme/s1\}:gone)$`)

// person makes everything that a user can have: a device, calls with an idempotency key, an approval, a grant, a paired
// device, a key, a conversation, usage.
func (w *world) person(user, session, words string) {
	w.Helper()
	caller, approver := w.tokenOf("caller", user, "acme"), w.tokenOf("approver", user, "acme")
	w.device(session, w.tokenOf("device", user, "acme"))
	call := `{"mode":"async","idempotency_key":"k-` + words + `","args":{"text":"` + words + `"}}`
	if status, body := send(w.T, w.url+"/api/sessions/"+session+"/tools/look/call", call,
		caller); status != http.StatusAccepted {
		w.Fatalf("call: %d %s", status, body)
	}
	w.waiting(session, user, "acme")
	w.granted(session, user, "acme")
	w.pair("paired-"+words, approver)
	w.create("/api/keys", `{"roles":["caller"],"name":"`+words+`","user_id":"`+user+`"}`,
		w.tokenOf("admin", "", "acme"))
	if status, body := send(w.T, w.url+"/api/sessions/"+session+"/messages", `{"content":"`+words+`"}`,
		caller); status != http.StatusOK {
		w.Fatalf("message: %d %s", status, body)
	}
}

// TestErase: on two pods, nothing that Redis stores names an erased person but what the receipt says, and all of
// another person stays. The audit log has the receipt without the person.
func TestErase(t *testing.T) {
	server := redistest.Start(t)
	cfg := farhand.Config{
		Token: adminToken, RedisURL: farhand.Secret(server.URL()), TrustedProxies: []string{"127.0.0.1"},
		FleetSecret: "a-secret-that-Redis-does-not-know", FleetRequired: true,
		JWT: jwt.Settings{Issuer: "issuer", Audience: "farhand", Secret: matrixSecret},
	}
	w := &world{T: t, things: make(map[string]map[string]string), tokens: make(map[string]string)}
	w.url = start(t, cfg, farhand.WithModel(&askedModel{}))
	other := start(t, cfg, farhand.WithModel(&askedModel{}))
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })

	w.person("u4711", "s1", "marker4711")
	w.person("u4712", "s2", "marker4712")
	has := func(key string) bool {
		_, ok := dumped(t, client)[key]
		return ok
	}
	p := &pairingPods{T: t}
	day := time.Now().UTC().Format(time.DateOnly)
	p.eventually("usage is written", func() bool { return has("fh:acme:usage:" + day) })
	before := dumped(t, client)
	if n := len(naming(before, "u4711", "marker4711")); n < 12 {
		t.Fatalf("only %d keys name the person", n)
	}

	var receipt struct {
		ID, Subject string
		Erased      map[string]int
		Kept        []struct{ What, Until string }
	}
	admin := w.tokenOf("admin", "", "acme")
	erase := func() { // on the pod that has no socket of the person
		t.Helper()
		if status := p.ask(http.MethodDelete, other+"/api/users/u4711", admin, nil, nil,
			&receipt); status != http.StatusOK {
			t.Fatalf("erase: %d", status)
		}
	}
	erase()
	// Not the grants: the pod of the person's session may have ended those with it before they are counted.
	for _, kind := range []string{"keys", "devices", "conversations", "approvals", "calls", "usage"} {
		if receipt.Erased[kind] == 0 {
			t.Errorf("no %s erased: %v", kind, receipt.Erased)
		}
	}
	sum := sha256.Sum256([]byte(receipt.ID + "\nacme\nu4711"))
	if receipt.Subject != hex.EncodeToString(sum[:8]) || len(receipt.Kept) == 0 {
		t.Errorf("receipt %+v", receipt)
	}
	p.eventually("what a pod wrote meanwhile is erased by a repetition", func() bool {
		erase()
		for key := range naming(dumped(t, client), "u4711", "marker4711") {
			if !keptOf.MatchString(key) {
				t.Logf("still names the person: %s", key)
				return false
			}
		}
		return true
	})
	after := naming(dumped(t, client), "u4712", "marker4712")
	for key := range naming(before, "u4712", "marker4712") {
		if !after[key] {
			t.Errorf("of another person %s is gone", key)
		}
	}
	if status, body := send(t, w.url+"/api/sessions/s2/tools/look/call", `{}`,
		w.tokenOf("caller", "u4712", "acme")); status != http.StatusOK {
		t.Errorf("another person's device: %d %s", status, body)
	}
	p.eventually("the audit log has the receipt", func() bool {
		_, body := send(t, w.url+"/api/audit?action=user.erase", "", admin)
		var page struct{ Lines []map[string]any }
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if strings.Contains(body, "u4711") {
			t.Fatalf("the audit log names the person: %s", body)
		}
		return strings.Contains(body, receipt.ID) && strings.Contains(body, receipt.Subject)
	})
}
