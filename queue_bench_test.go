package farhand_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/redisstore/redistest"
)

// queueRound is how many calls one wake of the device delivers.
const queueRound = 50

// BenchmarkQueuedCall compares a call that waits for its device with an asynchronous call to a connected one: from the
// request to the outcome, over Redis, on two pods. A queued call may cost three times as much.
func BenchmarkQueuedCall(b *testing.B) {
	redis := redistest.Start(b)
	cfg := farhand.Config{
		Token: adminToken, RedisURL: farhand.Secret("redis://" + redis.Addr()), CallBytes: 32 << 30,
	}
	caller, owner := start(b, cfg), start(b, cfg)
	post := func(more string) string {
		status, text := send(b, caller+"/api/tools/echo/call",
			`{"args":{"text":"hello"},"mode":"async","target":{"device_id":"phone"}`+more+`}`, adminToken)
		var accepted struct {
			CallID string `json:"call_id"`
		}
		if err := json.Unmarshal([]byte(text), &accepted); err != nil || status != http.StatusAccepted {
			b.Fatalf("%d %s", status, text)
		}
		return accepted.CallID
	}
	wait := func(ids []string) {
		for _, id := range ids {
			var rec struct{ State string }
			_, text := send(b, caller+"/api/calls/"+id+"?wait_ms=20000", "", adminToken)
			if err := json.Unmarshal([]byte(text), &rec); err != nil || rec.State != "succeeded" {
				b.Fatal(text)
			}
		}
	}
	for _, kind := range []string{"async", "queued"} {
		b.Run(kind, func(b *testing.B) {
			more := ""
			phone := wakePhone(b, owner, "phone", adminToken, echoTools, true)
			defer func() { phone.sleep() }()
			if kind == "queued" {
				more = `,"queue":{"ttl_ms":600000}`
				for known := false; !known; {
					status, _ := send(b, caller+"/api/devices/phone/queue", "", adminToken)
					known = status == http.StatusOK
				}
			}
			for done := 0; done < b.N; {
				n := min(queueRound, b.N-done)
				ids := make([]string, n)
				if kind == "queued" {
					phone.sleep()
				}
				for i := range ids {
					ids[i] = post(more)
				}
				if kind == "queued" {
					phone = wakePhone(b, owner, "phone", adminToken, echoTools, true)
				}
				wait(ids)
				done += n
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
