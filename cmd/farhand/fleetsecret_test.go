package main

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// TestAFleetSecretIsRolledOut restarts two pods one after the other, as docs/deploy.md says: to bring the fleet a
// secret, and to rotate it. After each restart the pods differ in what they sign and accept. Every call from one to the
// other, and every revocation, must still arrive, and no pod rejects a message of the other. One that is repeated by
// another client of Redis is rejected.
func TestAFleetSecretIsRolledOut(t *testing.T) {
	t.Parallel()
	const former, next = "the-former-secret-of-this-fleet-00", "the-next-secret-of-this-fleet-0000"
	base := []string{"FARHAND_REDIS_URL=" + redistest.Single(t), redisMayStall}
	pods := []*pod{startPod(t, base...), startPod(t, base...)}
	sessions := []string{"left", "right"}
	for i, p := range pods {
		connectDevice(t, p.url, sessions[i], client.WithTool(client.Tool{Name: "echo", Description: "x"},
			func(_ context.Context, call client.Call) (any, error) { return string(call.Args), nil }))
	}
	for step, settings := range [][]string{
		{"FARHAND_FLEET_SECRET=" + former, "FARHAND_FLEET_SECRET_REQUIRED=false"},
		{"FARHAND_FLEET_SECRET=" + former},
		{"FARHAND_FLEET_SECRET=" + former + "," + next},
		{"FARHAND_FLEET_SECRET=" + next + "," + former},
		{"FARHAND_FLEET_SECRET=" + next},
	} {
		for i := range pods {
			pods[i] = pods[i].restart(t, append(settings, base...))
			eventually(t, waitLimit, "the devices are listed", func() bool {
				return len(toolsOf(t, pods[0].url)) == 2 && len(toolsOf(t, pods[1].url)) == 2
			})
			// A pod that starts reads the log of changes, and may reject what was written two steps ago.
			before := rejectedBy(t, pods[0]) + rejectedBy(t, pods[1])
			for _, p := range pods {
				for _, session := range sessions {
					a := callTool(t, p.url, "/api/sessions/"+session+"/tools/echo/call", `{"args":{"n":1}}`)
					if a.Output != `{"n":1}` {
						t.Errorf("step %d, pod %d restarted: a call of %s: %+v", step, i, session, a)
					}
				}
			}
			revokeAcross(t, pods[i], pods[1-i])
			revokeAcross(t, pods[1-i], pods[i])
			if after := rejectedBy(t, pods[0]) + rejectedBy(t, pods[1]); after != before {
				t.Errorf("step %d, pod %d restarted: the pods rejected %s, and before %s", step, i, after, before)
			}
		}
	}
	repeatAMessage(t, strings.TrimPrefix(base[0], "FARHAND_REDIS_URL="), pods)
}

// revokeAcross makes a key on one pod and revokes it on another, which tells the first.
func revokeAcross(t *testing.T, one, other *pod) {
	t.Helper()
	var key struct{ ID, Key string }
	status, raw := request(t, http.MethodPost, one.url+"/api/keys", `{"roles":["caller"]}`)
	if err := unmarshal(raw, &key); err != nil || status != http.StatusCreated {
		t.Fatalf("a key: %d %s", status, raw)
	}
	me := func() int {
		req := mustRequest(one.url+"/api/me", "")
		req.Method = http.MethodGet
		req.Header.Set("Authorization", "Bearer "+key.Key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := me(); status != http.StatusOK {
		t.Errorf("a new key: %d", status)
	}
	if status, raw := request(t, http.MethodDelete, other.url+"/api/keys/"+key.ID, ""); status != http.StatusNoContent {
		t.Errorf("revoke: %d %s", status, raw)
	}
	eventually(t, waitLimit, "the key is revoked on the other pod", func() bool {
		return me() == http.StatusUnauthorized
	})
}

// rejectedBy returns the counters of messages that a pod rejected, without zeros.
func rejectedBy(t *testing.T, p *pod) string {
	t.Helper()
	_, raw := request(t, http.MethodGet, p.url+"/metrics", "")
	counters := regexp.MustCompile(`(?m)^farhand_bus_rejected_messages_total.* [1-9].*$`)
	return strings.Join(counters.FindAllString(string(raw), -1), ", ")
}

// repeatAMessage overhears a call from one pod to the other, and sends it once more.
func repeatAMessage(t *testing.T, url string, pods []*pod) {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	spy := rdb.PSubscribe(ctx, "*")
	defer spy.Close()
	if _, err := spy.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	const mark = "overheard"
	a := callTool(t, pods[0].url, "/api/sessions/right/tools/echo/call", `{"args":{"n":"`+mark+`"}}`)
	if a.Code != "" {
		t.Fatalf("%+v", a)
	}
	for {
		m, err := spy.ReceiveMessage(ctx)
		if err != nil {
			t.Fatalf("no message of the call: %v", err)
		}
		if strings.Contains(m.Payload, mark) {
			if err := rdb.Publish(ctx, m.Channel, m.Payload).Err(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	eventually(t, waitLimit, "the repeated message is rejected", func() bool {
		return strings.Contains(rejectedBy(t, pods[1]), `reason="repeated"`)
	})
}
