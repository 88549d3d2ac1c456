package farhand_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
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

// A device that leaves before it had all its calls is woken for the rest.
func TestADeviceThatLeavesIsWokenAgain(t *testing.T) {
	q := newQueuePods(t, func(cfg *farhand.Config) {
		cfg.Wake.WebhookSecret, cfg.PrivateURLs = wakeSecret, true
	})
	var pushes atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { pushes.Add(1) }))
	defer service.Close()
	phone := wakePhone(t, q.a, "phone", adminToken, echoTools, true)
	body := `{"kind":"webhook","url":"` + service.URL + `","min_interval_ms":1000}`
	put, err := http.NewRequestWithContext(
		t.Context(), http.MethodPut, q.a+"/api/devices/phone/wake", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode >= http.StatusMultipleChoices {
		t.Fatal(resp.Status)
	}
	phone.sleep()
	q.asleep("phone")
	for i := range int64(2) {
		q.call(q.a, "phone", `{}`, "", adminToken, http.StatusAccepted)
		testkit.Eventually(t, "a push for each call", func() bool { return pushes.Load() > i })
	}
	phone = wakePhone(t, q.a, "phone", adminToken, echoTools, false)
	testkit.Eventually(t, "the first call", func() bool { return len(phone.seen()) == 1 })
	phone.sleep()
	testkit.Eventually(t, "a push for the second call", func() bool { return pushes.Load() > 2 })
}
