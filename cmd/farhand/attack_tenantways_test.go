package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tenantAttack is a tenant that attacks a fleet with keys of many users.
type tenantAttack struct {
	Pods  []string // their addresses
	Keys  []string
	Links []string // the path of a file of 1 MiB for each key

	running sync.WaitGroup
	frames  atomic.Int64

	mu      sync.Mutex
	answers map[string]map[int]int // how many of each status, by the way of the attack
}

// The attackers pause that long between two requests: faster ones have the kernel of this machine drop packets.
const attackPause = 500 * time.Millisecond

// pod returns the address of the pod that a key attacks.
func (e *tenantAttack) pod(i int) string { return e.Pods[i%len(e.Pods)] }

// begin begins every attack, on each pod and with each key, and returns when devices and streams stand.
func (e *tenantAttack) begin(ctx context.Context) {
	e.takeSockets(ctx)
	e.takeStreams(ctx)
	for i, key := range e.Keys {
		url := e.pod(i)
		session := fmt.Sprintf("%s/api/sessions/evil-%d-0", url, i)
		e.takeCalls(ctx, key, url, session)
		e.takeTurns(ctx, key, url, session)
		e.takeMCP(ctx, key, fmt.Sprintf("%s/mcp/sessions/evil-%d-0", url, i))
		e.takeQueues(ctx, i)
		e.takeReads(ctx, key, url)
		e.takeFiles(ctx, i)
		e.takeDisk(ctx, key, url)
		e.takePairings(ctx, key, url)
		e.takeDecoding(ctx, i)
	}
}

// count notes the answer of a request of the attackers, and its status 0 for none.
func (e *tenantAttack) count(way string, status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = make(map[string]map[int]int)
	}
	if e.answers[way] == nil {
		e.answers[way] = make(map[int]int)
	}
	e.answers[way][status]++
}

// takeCalls holds calls in every mode, and waits for them.
func (e *tenantAttack) takeCalls(ctx context.Context, key, url, session string) {
	large := `{"timeout_ms":9000,"args":{"a":"` + strings.Repeat("a", 1_000_000) + `"}}`
	for range 5 {
		e.posts(ctx, "large calls", key, session+"/tools/work/call", large)
		e.posts(ctx, "asynchronous calls", key, session+"/tools/work/call", `{"mode":"async","timeout_ms":60000}`)
		e.posts(ctx, "ordered calls", key, session+"/tools/work/call", `{"ordered":true,"timeout_ms":9000}`)
		e.posts(ctx, "calls of an MCP server", key, url+"/api/tools/far__slow/call", `{"timeout_ms":30000}`)
		e.posts(ctx, "group calls", key, url+"/api/calls", `{"tool":"work","timeout_ms":9000}`)
		e.posts(ctx, "approvals", key, session+"/tools/wipe/call",
			`{"mode":"async","args":{"a":"`+strings.Repeat("a", 60_000)+`"}}`)
	}
	for range 8 {
		e.running.Go(func() { e.waits(ctx, key, url, session) })
	}
}

// takeTurns holds turns of conversations and completions.
func (e *tenantAttack) takeTurns(ctx context.Context, key, url, session string) {
	of := session[strings.LastIndex(session, "/")+1:]
	for range 5 {
		e.posts(ctx, "turns", key, session+"/messages", `{"content":"hang"}`)
		e.posts(ctx, "completions", key, url+"/v1/chat/completions",
			`{"model":"farhand","user":"`+of+`","messages":[{"role":"user","content":"hang"}]}`)
		e.posts(ctx, "streamed completions", key, url+"/v1/chat/completions", `{"model":"farhand","user":"`+of+
			`","stream":true,"messages":[{"role":"user","content":"hang `+strings.Repeat("a", 200_000)+`"}]}`)
	}
}

// takeMCP leaves calls of the older revisions half open.
func (e *tenantAttack) takeMCP(ctx context.Context, key, url string) {
	half := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"a":"` +
		strings.Repeat("a", 500_000) + `"}}}`
	for range 2 {
		e.hangUp(ctx, key, url, half)
		e.posts(ctx, "lists over MCP", key, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	}
}

// takeReads asks for all that is long, reads none of it, and has the rest counted.
func (e *tenantAttack) takeReads(ctx context.Context, key, url string) {
	for range 5 {
		e.gets(ctx, "exports", key, url+"/api/audit?format=jsonl")
		e.gets(ctx, "lists of tools", key, url+"/api/tools?limit=1000")
		e.gets(ctx, "usage", key, url+"/api/usage")
		e.gets(ctx, "lists of calls", key, url+"/api/calls?limit=1000")
		e.posts(ctx, "policy", key, url+"/api/policy/explain", `{"tool":"work"}`)
	}
	e.gets(ctx, "wrong tokens", "wrong", url+"/api/tools")
	for range 10 {
		e.unread(ctx, key, url, "/api/tools?limit=1000")
		e.unread(ctx, key, url, "/api/audit?format=jsonl")
	}
}

// takeDisk fills the disk, in ways that hide how much it is.
func (e *tenantAttack) takeDisk(ctx context.Context, key, url string) {
	for _, command := range []string{
		"sleep 20",
		"i=0; while :; do head -c 100000 /dev/zero >f$i; i=$((i+1)); done",
		"d=" + strings.Repeat("d", 250) + "; i=0; while [ $i -lt 20 ]; do mkdir $d; cd -P $d; i=$((i+1)); done; " +
			"j=0; while :; do head -c 1000000 /dev/zero >f$j; j=$((j+1)); done",
		"mkdir a; head -c 3000000 /dev/zero >a/f; head -c 3000000 /dev/zero >a/g; while :; do mv a b; mv b a; done",
		"exec 3>x; rm x; head -c 3900000 /dev/zero >&3; exec 4>y; rm y; head -c 3900000 /dev/zero >&4; sleep 20",
	} {
		body, err := json.Marshal(map[string]any{"args": map[string]any{"command": command}})
		if err != nil {
			panic(err)
		}
		e.posts(ctx, "commands", key, url+"/api/tools/exec/call", string(body))
	}
}

// takeQueues has calls wait for the devices that sleep, and pushes for each.
func (e *tenantAttack) takeQueues(ctx context.Context, i int) {
	args := strings.Repeat("a", 10_000)
	for n := range 3 {
		e.posts(ctx, "queued calls", e.Keys[i], e.pod(i)+"/api/tools/silent/call", fmt.Sprintf(
			`{"args":{"a":"%s"},"target":{"device_id":"evil-nap-%d-%d"},"queue":{"ttl_ms":60000}}`, args, i, n))
	}
	e.posts(ctx, "queued group calls", e.Keys[i], e.pod(i)+"/api/calls",
		`{"tool":"silent","queue":{"ttl_ms":60000}}`)
}

func (e *tenantAttack) posts(ctx context.Context, way, key, url, body string) {
	e.again(ctx, way, key, http.MethodPost, url, body)
}

func (e *tenantAttack) gets(ctx context.Context, way, key, url string) {
	e.again(ctx, way, key, http.MethodGet, url, "")
}

// again sends a request, and again when it was answered, until the attack ends.
func (e *tenantAttack) again(ctx context.Context, way, key, method, url, body string) {
	e.running.Go(func() {
		for ctx.Err() == nil {
			e.count(way, e.send(ctx, key, method, url, body))
			waitFor(ctx, attackPause)
		}
	})
}

// waits waits for calls that do not end.
func (e *tenantAttack) waits(ctx context.Context, key, url, session string) {
	for ctx.Err() == nil {
		_, text := sendAs(ctx, key, http.MethodPost, session+"/tools/work/call", "application/json",
			`{"mode":"async","timeout_ms":60000}`)
		var begun struct {
			CallID string `json:"call_id"`
		}
		if json.Unmarshal(text, &begun) == nil && begun.CallID != "" {
			e.count("waits", e.send(ctx, key, http.MethodGet, url+"/api/calls/"+begun.CallID+"?wait_ms=60000", ""))
		}
		waitFor(ctx, attackPause)
	}
}

// hangUp sends a request and goes before it is answered, again and again.
func (e *tenantAttack) hangUp(ctx context.Context, key, url, body string) {
	e.running.Go(func() {
		for ctx.Err() == nil {
			brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			e.count("calls over MCP left half open", e.send(brief, key, http.MethodPost, url, body))
			cancel()
			waitFor(ctx, 200*time.Millisecond)
		}
	})
}

// unread asks for something long many times over one connection, and reads nothing.
func (e *tenantAttack) unread(ctx context.Context, key, url, path string) {
	e.running.Go(func() {
		conn, err := unreadRequest(ctx, url, fmt.Sprintf(
			"GET %s HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer %s\r\n\r\n", path, key), 20)
		if err == nil {
			<-ctx.Done()
		}
		if conn != nil {
			conn.Close()
		}
	})
}

// send returns the status of an answer, zero without one.
func (e *tenantAttack) send(ctx context.Context, key, method, url, body string) int {
	status, _ := sendAs(ctx, key, method, url, "application/json", body)
	return status
}

// sendAs sends a request with a key, and returns the status of its answer, zero without one, and its body.
func sendAs(ctx context.Context, key, method, url, kind, body string) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, text
}

// takeStreams opens event streams until the pods give no more.
func (e *tenantAttack) takeStreams(ctx context.Context) {
	var seen atomic.Int64
	for i, key := range e.Keys {
		for n := 0; ; n++ {
			status := openEvents(ctx, e.pod(i), "/api/events", key,
				net.IPv4(127, 0, 0, byte(1+n%100)), &seen, &e.running)
			if e.count("event streams", status); status != http.StatusOK {
				break
			}
		}
	}
}
