package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

var restarts = flag.Int("restarts", 1, "how often TestRollingRestartBehindNginx restarts the whole "+
	"fleet; ten show more")

// TestRollingRestartBehindNginx restarts three pods behind the load balancer, one after the other and in quick
// succession, while their devices are called in every way there is. A call may fail only if its device had it when its
// pod went, and then it says so. All other calls wait for the device, which moves.
func TestRollingRestartBehindNginx(t *testing.T) {
	node, everything := mcpPackage(t, "@modelcontextprotocol/server-everything/dist/index.js")
	var calls atomic.Int64
	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		if role, said := lastOf(r); role == "tool" {
			return saying("It says: ", said)
		}
		n := 1_000_000 + 7919*calls.Add(1) // in no result before, else a person would be asked
		if offered(r, "get-sum") {
			return calling(scripted.Call{Name: "get-sum", Args: fmt.Sprintf(`{"a":%d,"b":1}`, n)})
		}
		return calling(scripted.Call{Name: "device_info", Args: `{}`})
	})
	settings := append(agentSettings(providerOpenAI, model), "FARHAND_REDIS_URL="+redistest.Single(t), redisMayStall)
	var pods []*pod
	for range 3 {
		pods = append(pods, startPod(t, settings...))
	}
	balancer := startBalancer(t, pods)
	env := []string{"FARHAND_TOKEN=" + fleetToken, "FARHAND_URL=" + balancer}
	devices := []*process{
		start(t, env, farhandBinary, "device", "--session", "plain", "--device", "plain", "--tools", "device_info"),
		start(t, env, farhandBinary, "device", "--device", "everything", "--mcp", fmt.Sprintf("exec %s %s stdio", node,
			everything)),
	}
	load := rollingLoad{
		url: balancer, failed: make(map[string]int), ok: make(map[string]int), lost: make(map[string]int),
	}
	for i := range fanDevices {
		name := fmt.Sprintf("fan-%d", i)
		connectDevice(t, balancer, name, fanTool(&load.received), client.WithDevice(name, "", ""))
	}
	eventually(t, waitLimit, "all tools are listed", func() bool {
		listed := toolsOf(t, balancer)
		return listed["plain"] == 1 && listed["everything"] > 0 && len(listed) == fanDevices+2
	})

	stop := load.start(t, fanDevices)
	for range *restarts {
		for i, p := range pods {
			pods[i] = p.restart(t, settings)
		}
	}
	defer load.check(t, *restarts*len(pods))
	load.everyKind(t) // after the last pod is back, too
	stop()
	for _, d := range devices {
		eventually(t, waitLimit, "the device says that it is back", func() bool {
			return strings.Contains(d.out.String(), `"msg":"connected again"`)
		})
	}
}

// restart stops a pod as an operator does, and starts it again at the same address.
func (p *pod) restart(t *testing.T, settings []string) *pod {
	t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("the pod ended with %d\n%s", code, p.out)
	}
	return startPodAt(t, strings.TrimPrefix(p.url, "http://"), settings...)
}

// fanDevices is the number of devices that offer the fan's tool.
const fanDevices = 8

// fanTool is offered by many devices. It counts the calls that they receive.
func fanTool(received *atomic.Int64) client.Option {
	return client.WithTool(client.Tool{Name: "fan", Description: "returns its arguments"},
		func(_ context.Context, call client.Call) (any, error) { received.Add(1); return string(call.Args), nil })
}

// rollingLoad calls devices until it is stopped.
type rollingLoad struct {
	url      string
	received atomic.Int64 // calls that the devices of the fan received

	mu     sync.Mutex
	ok     map[string]int // calls that succeeded, by their kind
	failed map[string]int // by kind and what was answered
	lost   map[string]int // calls that say that their devices had them when their pods went, by kind
}

// callKind is one way to call a device.
type callKind struct {
	name string
	do   func() (outcome string) // empty: it succeeded
}

// start begins to call, and returns what ends it.
func (l *rollingLoad) start(t *testing.T, fan int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, kind := range l.kinds(fan) {
		l.ok[kind.name] = 0
		callers.Go(func() {
			for ctx.Err() == nil {
				l.note(kind.name, kind.do())
				waitFor(ctx, 10*time.Millisecond)
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); callers.Wait() })
}

// kinds are all ways to call a device: by name and by session, over HTTP, MCP and /v1, and in a conversation.
func (l *rollingLoad) kinds(fan int) []callKind {
	var all []callKind
	add := func(name, path, body, want string) {
		all = append(all, callKind{name, func() string { return l.post(path, body, want) }})
	}
	for _, d := range []struct{ session, tool, args, want string }{
		{"plain", "device_info", `{}`, "linux"},
		{"everything", "get-sum", `{"a":20,"b":22}`, "The sum of"},
	} {
		call := fmt.Sprintf(`{"args":%s}`, d.args)
		rpc := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`,
			d.tool, d.args)
		add(d.session+" over HTTP by name", "/api/tools/"+d.tool+"/call", call, d.want)
		add(d.session+" over HTTP by session", "/api/sessions/"+d.session+"/tools/"+d.tool+"/call", call, d.want)
		add(d.session+" over HTTP by device", "/api/tools/"+d.tool+"/call",
			fmt.Sprintf(`{"args":%s,"target":{"device_id":%q}}`, d.args, d.session), d.want)
		add(d.session+" over MCP by name", "/mcp", rpc, d.want)
		add(d.session+" over MCP by session", "/mcp/sessions/"+d.session, rpc, d.want)
		add(d.session+" over /v1", "/v1/chat/completions#"+d.session,
			`{"model":"farhand","messages":[{"role":"user","content":"sum"}]}`, d.want)
		add(d.session+" in a conversation", "/api/sessions/"+d.session+"/messages", `{"content":"sum"}`, d.want)
	}
	for i := range fan {
		add("the fan by device", "/api/tools/fan/call",
			fmt.Sprintf(`{"args":{"n":"forty-two"},"target":{"device_id":"fan-%d"}}`, i), "forty-two")
	}
	add("any of the fan", "/api/tools/fan/call", `{"args":{"n":"forty-two"},"select":"any"}`, "forty-two")
	add("the newest of the fan", "/api/tools/fan/call", `{"args":{"n":"forty-two"},"select":"newest"}`, "forty-two")
	return all
}

// post makes one call. What follows # in the path is the session of a completion.
func (l *rollingLoad) post(path, body, want string) (outcome string) {
	path, session, _ := strings.Cut(path, "#")
	req, err := http.NewRequest(http.MethodPost, l.url+path, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for key, value := range map[string]string{
		"Authorization": "Bearer " + fleetToken, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25",
		"X-Farhand-Session": session,
	} {
		if value != "" && (key != "Mcp-Protocol-Version" && key != "Accept" || strings.HasPrefix(path, "/mcp")) {
			req.Header.Set(key, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err.Error()
	case resp.StatusCode != http.StatusOK || !strings.Contains(string(raw), want):
		return fmt.Sprintf("%d %.600s", resp.StatusCode, raw)
	}
	return ""
}

func (l *rollingLoad) note(kind, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case outcome == "":
		l.ok[kind]++
	case saysLost(outcome):
		l.lost[kind]++
	default:
		l.failed[kind+": "+outcome]++
	}
}

// saysLost reports whether an answer says that the device had the call when its pod went.
func saysLost(outcome string) bool {
	_, body, _ := strings.Cut(outcome, " ")
	var p struct {
		Code, Dispatched string
		Error            struct {
			Data struct{ Code, Dispatched string }
		}
	}
	if json.Unmarshal([]byte(body), &p) != nil {
		return false
	}
	if p.Code == "" {
		p.Code, p.Dispatched = p.Error.Data.Code, p.Error.Data.Dispatched
	}
	return (p.Code == "connection_lost" || p.Code == "lost") && p.Dispatched != "no"
}

// everyKind waits until each kind of call has succeeded once more.
func (l *rollingLoad) everyKind(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	before := maps.Clone(l.ok)
	l.mu.Unlock()
	eventually(t, 3*waitLimit, "every kind of call succeeds after the restart", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for kind, n := range before {
			if l.ok[kind] <= n {
				return false
			}
		}
		return true
	})
}

// check judges the calls. gone is how often a pod stopped: a caller makes one call at a time, so it can lose one each
// time. The fan's devices count what they receive, so there a call that never arrived cannot pass as lost.
func (l *rollingLoad) check(t *testing.T, gone int) {
	t.Helper()
	total, lost, fan := 0, 0, 0
	callers := make(map[string]int)
	for _, kind := range l.kinds(fanDevices) {
		callers[kind.name]++
	}
	for _, kind := range slices.Sorted(maps.Keys(l.ok)) {
		t.Logf("%s: %d, %d lost", kind, l.ok[kind], l.lost[kind])
		if l.lost[kind] > gone*callers[kind] {
			t.Errorf("%s: %d calls lost, but pods stopped %d times", kind, l.lost[kind], gone)
		}
		total, lost = total+l.ok[kind], lost+l.lost[kind]
		if strings.Contains(kind, "the fan") {
			fan += l.ok[kind] + l.lost[kind]
		}
	}
	if received := int(l.received.Load()); fan > received {
		t.Errorf("%d calls of the fan succeeded or were lost, but its devices received %d", fan, received)
	}
	t.Logf("%d calls succeeded; devices had %d when their pods went", total, lost)
	for _, what := range slices.Sorted(maps.Keys(l.failed)) {
		t.Errorf("%d times %s", l.failed[what], what)
	}
	if total < 100 {
		t.Errorf("only %d calls", total)
	}
}
