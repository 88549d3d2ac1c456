package farhand_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// sleeps disconnects devices and waits until the gateway lists n sleeping ones.
func (p *groupPods) sleeps(n int, token string, devices ...*groupDevice) {
	p.Helper()
	for _, d := range devices {
		d.conn.Close()
	}
	testkit.Eventually(p.TB, fmt.Sprintf("%d sleeping devices", n), func() bool {
		resp := p.request(p.Context(), 0, http.MethodGet, "/api/sessions?presence=sleeping&limit=500", "", token)
		defer resp.Body.Close()
		var list struct{ Sessions []json.RawMessage }
		return json.NewDecoder(resp.Body).Decode(&list) == nil && len(list.Sessions) == n
	})
}

// queuedRows returns the calls that wait, by their sessions.
func (p *groupPods) queuedRows(table groupTable) map[string]string {
	p.Helper()
	ids := make(map[string]string)
	for _, r := range table.Results {
		if r.State != "queued" {
			continue
		}
		at, err := time.Parse(time.RFC3339, r.Expires)
		if err != nil || r.Place != 1 || r.CallID == "" || r.DeviceID != "d-"+r.SessionID ||
			time.Until(at) > time.Hour {
			p.Errorf("queued: %+v", r)
		}
		ids[r.SessionID] = r.CallID
	}
	return ids
}

const hour = `"queue":{"ttl_ms":3600000}`

// With queue, devices that sleep are called after the connected ones: each once, when it is back, on any pod.
func TestGroupCallQueues(t *testing.T) {
	p := newGroupPods(t, nil)
	here := `{"site":"vienna"}`
	p.device(0, "awake", here, says("ok"))
	p.sleeps(3, groupToken, p.device(0, "one", here, says("1")), p.device(1, "two", here, says("2")),
		p.device(1, "far", `{"site":"graz"}`, says("3")))

	_, table := p.call(1, `{"tool":"look","target":{"labels":{"site":"vienna"}}}`)
	if table.Counts != (groupCounts{Devices: 1, Succeeded: 1}) {
		t.Errorf("without queue: %+v", table)
	}
	_, table = p.call(1, `{"tool":"look","target":{"labels":{"site":"vienna"}},`+hour+`,"timeout_ms":5000}`)
	waiting := p.queuedRows(table)
	if table.State != "succeeded" || table.Counts != (groupCounts{Devices: 3, Succeeded: 1, Queued: 2}) ||
		len(waiting) != 2 || waiting["one"] == "" || waiting["two"] == "" {
		t.Fatalf("labels: %+v", table)
	}
	var child groupRecord
	if p.get(0, "/api/calls/"+waiting["one"], &child); child.State != "queued" || child.ParentID != table.CallID {
		t.Errorf("child: %+v", child)
	}
	_, only := p.call(0, `{"tool":"look","target":{"labels":{"site":"graz"}},`+hour+`}`)
	if far := p.queuedRows(only); only.State != "succeeded" || only.Counts.Queued != 1 || far["far"] == "" {
		t.Errorf("only sleeping devices: %+v", only)
	}
	p.device(1, "one", here, says("1"))
	p.device(0, "two", here, says("2"))
	for _, id := range waiting {
		p.wantState(id, "succeeded")
	}
	if p.called("one") != 1 || p.called("two") != 1 {
		t.Errorf("called %d and %d times", p.called("one"), p.called("two"))
	}

	_, table = p.call(0, `{"tool":"look","target":{"device_ids":["d-awake","d-nobody"]},`+hour+`}`)
	if table.Counts != (groupCounts{Devices: 2, Succeeded: 1, Failed: 1}) {
		t.Errorf("by ids: %+v", table)
	}
	_, table = p.call(0, `{"tool":"look","target":{"session_ids":["far"]},"queue":{"ttl_ms":60000}}`)
	if len(table.Results) != 1 || table.Results[0].State != "queued" || table.Results[0].Place != 2 {
		t.Errorf("by its session, behind another call: %+v", table)
	}
	for body, code := range map[string]string{
		`{"tool":"look","mode":"first",` + hour + `}`:           "invalid_arguments",
		`{"tool":"look","queue":{"ttl_ms":5}}`:                  "invalid_arguments",
		`{"tool":"look","queue":{"ttl_ms":172800000}}`:          "invalid_request",
		`{"tool":"look","queue":{}}`:                            "invalid_arguments",
		`{"tool":"look","queue":7}`:                             "invalid_request",
		`{"tool":"look","target":{"user_id":"u"},` + hour + `}`: "session_not_found",
		`{"tool":"listen",` + hour + `}`:                        "session_not_found",
	} {
		if status, table := p.call(0, body); status < 400 || table.Code != code {
			t.Errorf("%s: %d %+v, want %s", body, status, table, code)
		}
	}
}

// A page has a hundred devices: each of more sleeping ones is called once.
func TestGroupCallQueuesPages(t *testing.T) {
	p := newGroupPods(t, nil)
	var devices []*groupDevice
	for i := range 230 {
		devices = append(devices, p.device(i%2, fmt.Sprintf("s-%d", i), `{}`, says("ok")))
	}
	p.sleeps(200, groupToken, devices[:200]...)
	_, table := p.call(1, `{"tool":"look",`+hour+`}`)
	if waiting := p.queuedRows(table); len(waiting) != 200 ||
		table.Counts != (groupCounts{Devices: 230, Succeeded: 30, Queued: 200}) {
		t.Errorf("%d wait: %+v", len(waiting), table.Counts)
	}
}

// Cancelling the parent cancels its children that wait for their devices.
func TestGroupCallCancelsQueued(t *testing.T) {
	p := newGroupPods(t, nil)
	p.device(0, "hangs", `{}`, says(""))
	p.sleeps(1, groupToken, p.device(1, "one", `{}`, says("1")))
	resp := p.request(t.Context(), 0, http.MethodPost, "/api/calls", `{"tool":"look",`+hour+`}`, groupToken,
		"Accept", "application/x-ndjson")
	defer resp.Body.Close()
	lines, parent := bufio.NewScanner(resp.Body), resp.Header.Get("X-Farhand-Call-ID")
	for lines.Scan() {
		var row groupRow
		if json.Unmarshal(lines.Bytes(), &row) == nil && row.State == "queued" {
			testkit.Eventually(t, "the parent is cancelled", func() bool {
				again := p.request(t.Context(), 1, http.MethodDelete, "/api/calls/"+parent, "", groupToken)
				defer again.Body.Close()
				return again.StatusCode == http.StatusOK
			})
			p.wantState(row.CallID, "cancelled")
			return
		}
	}
	t.Error("no queued row")
}

// The approval of a group call covers the call of a sleeping device: it is not asked about again when it is back.
func TestGroupCallQueuesApproved(t *testing.T) {
	p := onePod(t, `tools: [{id: looks, names: look, approval: {by: anyone}}]`+"\n", nil)
	tools := `[{"name":"look","parameters":{"type":"object"}}]`
	p.sleeps(1, "root", p.deviceOf(0, "ada-3", `{}`, "ada", tools, says("ok")))
	answer := make(chan groupTable, 1)
	go func() {
		_, table := p.callAs(0, "ada", `{"tool":"look","target":{"user_id":"ada"},`+hour+`}`)
		answer <- table
	}()
	a := p.approvals(1)[0]
	if len(a.Devices) != 3 {
		t.Errorf("asked about %+v", a.Devices)
	}
	p.decide(a, "allow-once")
	table := <-answer
	waiting := p.queuedRows(table)
	if table.Counts != (groupCounts{Devices: 3, Succeeded: 2, Queued: 1}) || waiting["ada-3"] == "" {
		t.Fatalf("%+v", table)
	}
	p.deviceOf(0, "ada-3", `{}`, "ada", tools, says("ok"))
	resp := p.request(t.Context(), 0, http.MethodGet, "/api/calls/"+waiting["ada-3"]+"?wait_ms=20000", "", "ada")
	defer resp.Body.Close()
	var rec struct {
		State, Output string
		Problem       *struct{ Code, Detail string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&rec); err != nil || rec.State != "succeeded" || rec.Output != "ok" {
		t.Errorf("%v %+v %+v", err, rec, rec.Problem)
	}
	p.approvals(0)
}

// The tool call_devices says in its result that calls wait, and until when.
func TestGroupCallQueuesForModels(t *testing.T) {
	p := newGroupPods(t, func(cfg *farhand.Config) { cfg.Builtins = []string{"call_devices"} })
	p.sleeps(1, groupToken, p.device(1, "one", `{}`, says("1")))
	resp := p.request(t.Context(), 0, http.MethodPost, "/api/tools/call_devices/call",
		`{"args":{"tool":"look","devices":{"all":true},`+hour+`}}`, groupToken)
	defer resp.Body.Close()
	var said struct {
		Success    bool
		Output     string
		Structured struct {
			Counts  groupCounts
			Devices []groupRow
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		t.Fatal(err)
	}
	rows := said.Structured.Devices
	if !said.Success || said.Structured.Counts != (groupCounts{Devices: 1, Queued: 1}) || len(rows) != 1 ||
		rows[0].Place != 1 || !strings.Contains(said.Output, `"d-one": queued: waits for the device until `) {
		t.Errorf("%+v", said)
	}
}
