package farhand_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/registry/memory"
)

// A pod may die after it has stored the record of a call, and before it adds the call to the queue.
func TestARepeatedRequestQueuesALostCall(t *testing.T) {
	const key = `,"idempotency_key":"once"`
	for _, awake := range []bool{false, true} {
		q := newQueuePods(t, nil)
		q.slept("phone", echoTools)
		lost := q.call(q.a, "phone", `{"n":1}`, key, adminToken, http.StatusAccepted)
		keys, err := q.redis.Command("KEYS", "*:queue}*")
		if err != nil || keys == "" {
			t.Fatalf("keys of the queue: %q, %v", keys, err)
		}
		if _, err = q.redis.Command(append([]string{"DEL"}, strings.Fields(keys)...)...); err != nil {
			t.Fatal(err)
		}
		var phone *phone
		if awake {
			phone = wakePhone(t, q.a, "phone", adminToken, echoTools, true)
		}
		again := q.call(q.b, "phone", `{"n":1}`, key, adminToken, http.StatusAccepted)
		if again.CallID != lost.CallID || again.Place != 1 || again.Expires == "" {
			t.Errorf("awake %v: %+v, lost %+v", awake, again, lost)
		}
		if !awake {
			phone = wakePhone(t, q.a, "phone", adminToken, echoTools, true)
		}
		if end := q.outcome(q.a, lost.CallID); end.State != "succeeded" || len(phone.seen()) != 1 {
			t.Errorf("awake %v: %+v, the device got %v", awake, end, phone.seen())
		}
	}
}

// Whether a call has expired is a matter of the store's clock alone: that of a pod may be wrong.
func TestQueuedCallsExpireByTheStoresClock(t *testing.T) {
	store := memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	q := queuePods{T: t}
	q.a = start(t, farhand.Config{Token: adminToken}, farhand.WithStore(store, store.NewBus()))
	q.b = q.a
	q.slept("phone", echoTools)
	c := q.call(q.a, "phone", `{"n":1}`, "", adminToken, http.StatusAccepted)
	wakePhone(t, q.a, "phone", adminToken, echoTools, true)
	if end := q.outcome(q.a, c.CallID); end.State != "succeeded" {
		t.Errorf("%+v", end)
	}
}
