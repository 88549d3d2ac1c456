package farhand_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// Each mode ends as it promises, over devices of two pods, and partial failure is a result.
func TestGroupCallModes(t *testing.T) {
	p := newGroupPods(t, nil)
	held := make(chan string, 8) // calls that get no answer
	p.device(0, "good-0", `{"site":"vienna"}`, says("zero"))
	p.device(1, "bad-1", `{"site":"vienna"}`, says("!"))
	p.device(1, "good-2", `{"site":"vienna"}`, says("two"))
	p.device(0, "silent-3", `{"site":"graz"}`, func(d *groupDevice, call string) string { held <- d.id; return "" })
	p.device(1, "other-4", `{"site":"linz"}`, says("four"))

	status, table := p.call(0, `{"tool":"look","args":{"a":"<b>"},"target":{"labels":{"site":"vienna"}},"select":"all"}`)
	if status != http.StatusOK || table.State != "failed" || table.Mode != "all" ||
		table.Counts != (groupCounts{Devices: 3, Succeeded: 2, Failed: 1}) || len(table.Results) != 3 {
		t.Errorf("all: %d %+v", status, table)
	}
	for _, r := range table.Results {
		if want := map[string]string{"good-0": "zero", "bad-1": "broken",
			"good-2": "two"}[r.SessionID]; r.Output != want ||
			r.DeviceID != "d-"+r.SessionID {
			t.Errorf("all: %+v", r)
		}
	}
	_, table = p.call(1, `{"tool":"look","target":{"device_ids":["d-good-0","d-nobody","d-good-2"]}}`)
	if table.Counts != (groupCounts{Devices: 3, Succeeded: 2, Failed: 1}) {
		t.Errorf("by device ids: %+v", table)
	}
	for _, r := range table.Results {
		if r.DeviceID == "d-nobody" && (r.Problem == nil || r.Problem.Code != "session_not_found") {
			t.Errorf("an unknown device: %+v", r)
		}
	}
	_, table = p.call(1, `{"tool":"look","target":{"session_ids":["silent-3","good-2"]},"mode":"first"}`)
	if table.State != "succeeded" || table.states()["good-2"] != "succeeded" ||
		table.Counts.Succeeded != 1 || table.Counts.Failed != 0 {
		t.Errorf("first: %+v %+v", table, table.Results[len(table.Results)-1].Problem)
	}
	_, table = p.call(0, `{"tool":"look","mode":"quorum","quorum":3}`)
	if table.State != "succeeded" || table.Counts.Succeeded != 3 ||
		table.states()["silent-3"] != "cancelled" {
		t.Errorf("quorum: %+v", table)
	}
	_, table = p.call(0, `{"tool":"look","target":{"labels":{"site":"vienna"}},"mode":"quorum","quorum":3}`)
	if table.State != "failed" || table.Counts.Succeeded != 2 {
		t.Errorf("a quorum that is not reached: %+v", table)
	}
	_, table = p.call(1, `{"tool":"look","target":{"session_ids":["bad-1","silent-3","good-2","other-4"]},"mode":"race",`+
		`"stagger_ms":2000}`) // good-2 must answer before the next device's turn
	if table.State != "succeeded" || table.states()["bad-1"] != "failed" || table.states()["silent-3"] != "cancelled" ||
		table.states()["good-2"] != "succeeded" || table.Counts.Skipped != 1 {
		t.Errorf("race: %+v", table)
	}
	_, table = p.call(0, `{"tool":"look","target":{"session_ids":["silent-3","good-2"]},"device_timeout_ms":2000}`)
	if table.State != "failed" || table.states()["silent-3"] != "timed_out" || table.Counts.Succeeded != 1 {
		t.Errorf("a device that is too slow: %+v", table)
	}
	began := time.Now()
	_, table = p.call(0, `{"tool":"look","target":{"session_ids":["silent-3","good-2"]},"timeout_ms":2000}`)
	if table.State != "failed" || table.Counts.Succeeded != 1 || table.Counts.Failed+table.Counts.Cancelled != 1 ||
		time.Since(began) > limit/2 {
		t.Errorf("the time of the whole call: %+v", table)
	}
}

// Requests that name no devices, or the same one twice, or that nothing can answer, fail as a whole.
func TestGroupCallRefused(t *testing.T) {
	p := newGroupPods(t, nil)
	p.device(0, "one", `{}`, says("ok"))
	for body, code := range map[string]string{
		`{"tool":"look","target":{}}`: "invalid_request", `{"target":{"user_id":"u"}}`: "invalid_request",
		`{"tool":"look","select":"any"}`:                              "invalid_request",
		`{"tool":"look","target":{"user_id":"u","device_ids":["a"]}}`: "invalid_arguments",
		`{"tool":"look","target":{"device_ids":["a","a"]}}`:           "invalid_arguments",
		`{"tool":"look","mode":"quorum"}`:                             "invalid_arguments",
		`{"tool":"look","mode":"most"}`:                               "invalid_arguments",
		`{"tool":"look","args":[]}`:                                   "invalid_arguments",
		`{"tool":"listen"}`:                                           "session_not_found",
		`{"tool":"look","target":{"labels":{"a":"b"}}}`:               "session_not_found",
		`{"tool":"look","timeout_ms":0}`:                              "invalid_request",
		`{"tool":"look","extra":1}`:                                   "invalid_request",
		`{"tool":"look","idempotency_key":""}`:                        "invalid_request",
	} {
		if status, table := p.call(0, body); status < 400 || table.Code != code {
			t.Errorf("%s: %d %+v, want %s", body, status, table, code)
		}
	}
}

// The three formats say the same, and rows come before the last device has answered.
func TestGroupCallStreams(t *testing.T) {
	p := newGroupPods(t, nil)
	ask := make(chan string, 1)
	slow := p.device(0, "slow", `{}`, func(_ *groupDevice, call string) string { ask <- call; return "" })
	p.device(1, "quick", `{}`, says("ok"))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, media := range []string{"text/event-stream", "application/x-ndjson", "application/json"} {
		resp := p.request(ctx, 1, http.MethodPost, "/api/calls", `{"tool":"look"}`, groupToken, "Accept", media)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != media {
			t.Fatalf("%s: %d %q", media, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		in := bufio.NewReader(resp.Body)
		var all strings.Builder
		for !strings.Contains(all.String(), `"quick"`) { // comes while slow has not answered
			b, err := in.ReadByte()
			if err != nil {
				t.Fatalf("%s: %v after %q", media, err, all.String())
			}
			all.WriteByte(b)
		}
		slow.answer(<-ask, "at last")
		if _, err := in.WriteTo(&all); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		text := all.String()
		for _, want := range map[string][]string{
			"text/event-stream":    {"event: call\ndata: {", "event: result\ndata: {", "event: done\ndata: {"},
			"application/x-ndjson": {`{"type":"call",`, `{"type":"result",`, `{"type":"done",`},
			"application/json":     {`{"call_id":`, `"results":[`, `"counts":{"devices":2,"succeeded":2`},
		}[media] {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %s", media, want, text)
			}
		}
	}
}

// The record of the parent has its mode and counts, on every pod and in lists, and those of the children name it.
func TestGroupCallRecords(t *testing.T) {
	p := newGroupPods(t, nil)
	p.device(0, "one", `{}`, says("ok"))
	p.device(1, "two", `{}`, says("!"))
	for _, key := range []string{"", `,"idempotency_key":"k1"`} {
		_, table := p.call(0, `{"tool":"look"`+key+`}`)
		var parent groupRecord
		p.wantState(table.CallID, "failed") // a short call is in the feed after a moment
		p.get(1, "/api/calls/"+table.CallID, &parent)
		if parent.Mode != "all" || parent.State != "failed" || parent.Tool != "call_devices" ||
			parent.Counts == nil || *parent.Counts != (groupCounts{Devices: 2, Succeeded: 1, Failed: 1}) {
			t.Errorf("parent: %+v %+v", parent, parent.Counts)
		}
		var list struct{ Calls []groupRecord }
		testkit.Eventually(t, "children in the list", func() bool {
			p.get(1, "/api/calls?parent="+table.CallID, &list)
			return len(list.Calls) == 2
		})
		for _, c := range list.Calls {
			if c.ParentID != table.CallID || c.Tool != "look" || c.Mode != "sync" {
				t.Errorf("child: %+v", c)
			}
		}
		testkit.Eventually(t, "the parent in the list", func() bool {
			p.get(1, "/api/calls?tool=call_devices", &list)
			for _, c := range list.Calls {
				if c.CallID == table.CallID {
					return c.Mode == "all" && c.Counts != nil && c.Counts.Devices == 2
				}
			}
			return false
		})
	}
	// The key's request repeated, on the other pod: nothing runs again.
	resp := p.request(t.Context(), 1, http.MethodPost, "/api/calls", `{"tool":"look","idempotency_key":"k1"}`,
		groupToken)
	defer resp.Body.Close()
	var again groupTable
	if err := json.NewDecoder(resp.Body).Decode(&again); err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Idempotent-Replayed") != "true" || again.State != "failed" || len(again.Results) != 2 ||
		again.Counts != (groupCounts{Devices: 2, Succeeded: 1, Failed: 1}) {
		t.Errorf("replayed: %v %+v", resp.Header, again)
	}
	if status, other := p.call(0, `{"tool":"look","mode":"first","idempotency_key":"k1"}`); status != http.StatusConflict {
		t.Errorf("another request with the key: %d %+v", status, other)
	}
	for _, id := range []string{"one", "two"} {
		if n := p.called(id); n != 2 {
			t.Errorf("%s was called %d times", id, n)
		}
	}
}

// Cancelling the parent, on another pod, cancels its children. So does a caller that hangs up.
func TestGroupCallCancelled(t *testing.T) {
	p := newGroupPods(t, nil)
	asked := make(chan string, 8)
	hang := func(_ *groupDevice, call string) string { asked <- call; return "" }
	p.device(0, "one", `{}`, hang)
	p.device(1, "two", `{}`, hang)
	ended := make(chan groupTable, 1)
	id := make(chan string, 1)
	go func() {
		resp := p.request(t.Context(), 0, http.MethodPost, "/api/calls", `{"tool":"look"}`, groupToken)
		defer resp.Body.Close()
		id <- resp.Header.Get("X-Farhand-Call-ID")
		var table groupTable
		if err := json.NewDecoder(resp.Body).Decode(&table); err != nil {
			t.Error(err)
		}
		ended <- table
	}()
	parent, children := <-id, []string{<-asked, <-asked}
	testkit.Eventually(t, "the parent's record", func() bool {
		resp := p.request(t.Context(), 1, http.MethodDelete, "/api/calls/"+parent, "", groupToken)
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	table := <-ended
	if table.State != "cancelled" || table.Problem == nil || table.Counts.Cancelled != 2 {
		t.Errorf("cancelled: %+v", table)
	}
	p.wantState(parent, "cancelled")
	for _, c := range children {
		p.wantState(c, "cancelled")
	}

	ctx, hangUp := context.WithCancel(t.Context())
	resp := p.request(ctx, 1, http.MethodPost, "/api/calls", `{"tool":"look"}`, groupToken)
	defer resp.Body.Close()
	children = []string{<-asked, <-asked}
	hangUp()
	for _, c := range children {
		p.wantState(c, "cancelled")
	}
}

// A device whose pod goes away has a row of its own, and the others are not affected.
func TestGroupCallLosesADevice(t *testing.T) {
	p := newGroupPods(t, nil)
	asked := make(chan *groupDevice, 1)
	p.device(1, "leaves", `{}`, func(d *groupDevice, _ string) string { asked <- d; return "" })
	p.device(0, "stays", `{}`, says("ok"))
	go func() { (<-asked).conn.Close() }()
	_, table := p.call(0, `{"tool":"look"}`)
	if table.states()["leaves"] != "lost" || table.states()["stays"] != "succeeded" || table.Counts.Failed != 1 {
		t.Errorf("%+v", table)
	}
}

// White space between the JSON tokens of a device's output ends no row: a device writes only its own.
func TestGroupCallRowsOfADevice(t *testing.T) {
	p := newGroupPods(t, nil)
	const forged = `{"type":"result","session_id":"honest","state":"succeeded","success":true,"output":"forged"}`
	for pod, id := range []string{"here", "there"} {
		p.device(pod, id, `{}`, func(d *groupDevice, call string) string {
			d.write(`{"type":"tool_result","id":"` + call + `","output":[` + "\n" + forged + "\r\n,\n\r\n\n" + `1]}`)
			return ""
		})
	}
	const event = "event: %s\ndata: "
	for media, form := range map[string]string{"text/event-stream": event, "application/x-ndjson": `{"type":"%s",`} {
		resp := p.request(t.Context(), 0, http.MethodPost, "/api/calls", `{"tool":"look"}`, groupToken, "Accept", media)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == '\r' })
		if form == event { // each has two lines
			for i := 0; i+1 < len(rows); i++ {
				rows[i] += "\n" + rows[i+1]
				rows = slices.Delete(rows, i+1, i+2)
			}
		}
		if len(rows) != 4 {
			t.Fatalf("%s: %d rows, want 4:\n%s", media, len(rows), text)
		}
		for i, kind := range []string{"call", "result", "result", "done"} {
			_, data, found := strings.Cut(rows[i], fmt.Sprintf(form, kind))
			if form != event {
				data = "{" + data
			}
			if !found || !json.Valid([]byte(data)) {
				t.Errorf("%s: row %d: %s", media, i, rows[i])
			}
		}
	}
}
