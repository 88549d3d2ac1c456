package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// hostileTenant is the tenant of the attackers. The honest caller is of the default one.
const hostileTenant = "evil"

// tenantAttack is a tenant that attacks a fleet with keys of many users.
type tenantAttack struct {
	pods    []*pod
	keys    []string
	answers statuses
	running sync.WaitGroup
}

// TestAttackHostileTenant: one tenant takes all it can of everything a pod has, all at once, and another one works. Its
// calls are served in time, nothing is refused to it, and the pods say that they are ready.
func TestAttackHostileTenant(t *testing.T) {
	release := make(chan struct{})
	model := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		if _, said := lastOf(r); strings.Contains(said, "hang") {
			return scripted.Reply(scripted.Hold(release), scripted.Text("done"))
		}
		return scripted.Reply(scripted.Text("done"))
	})
	disk, programs := attackedPrograms(t)
	a := startAttacked(t, 2, append(append(agentSettings(providerOpenAI, model), "FARHAND_PAIRING=open",
		"FARHAND_MCP_SERVERS="+sharedServer(t, release)), programs...)...)
	e := &tenantAttack{pods: a.pods}
	for i := range 8 {
		e.keys = append(e.keys, keyFor(t, a.pods[0].url, fmt.Sprintf(
			`{"tenant":"%s","roles":["device","caller","approver","admin"],"user_id":"user-%d"}`, hostileTenant, i)))
	}
	a.under(t, 5*waitLimit, func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer e.running.Wait()
		defer close(release)
		defer stop()
		e.begin(t, ctx)
		served := &honestTenant{urls: []string{a.pods[0].url, a.pods[1].url}}
		for began := time.Now(); time.Since(began) < 2*attackTime || served.rounds < 3; {
			served.round(t, ctx)
		}
		t.Logf("%d rounds of the other tenant", served.rounds)
	})
	t.Logf("the attackers' answers: %v", e.answers.by)
	a.peakBelow(t, 700)
	a.calmWithin(t, 5*time.Second)
	if used := diskUse(t, disk); used > 10*len(e.keys)*attackedWorkspace {
		t.Errorf("workspaces hold %d bytes", used)
	}
}

// attackedWorkspace is what a workspace may hold while programs attack the disk, in bytes.
const attackedWorkspace = 4 << 20

// attackedPrograms returns the settings of pods whose callers may run any command, and the folder they work in.
func attackedPrograms(t *testing.T) (disk string, settings []string) {
	t.Helper()
	disk, err := os.MkdirTemp("/var/tmp", "farhand-attack") // programs of another user pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(disk) })
	if err := os.Chmod(disk, 0o711); err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(rules, []byte("version: 1\ntools:\n"+
		"  - {id: default:programs, names: [exec], approval: never, resources: {maxProcesses: 4}}\n"+
		"  - {id: default:programs-on-the-host, names: [exec], programs: {security: full}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return disk, []string{"FARHAND_BUILTIN_TOOLS=exec,write", "FARHAND_POLICY_FILE=" + rules,
		"FARHAND_WORKSPACE_DIR=" + disk, fmt.Sprintf("FARHAND_WORKSPACE_BYTES=%d", attackedWorkspace),
		"FARHAND_WORKSPACE_FILES=200", "XDG_CACHE_HOME=" + disk}
}

// diskUse returns what files take on the disk.
func diskUse(t *testing.T, dir string) (bytes int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += int(info.Sys().(*syscall.Stat_t).Blocks) * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// sharedServer is an MCP server that tenants share, and returns the file that names it. Its tool slow answers when
// release is closed.
func sharedServer(t *testing.T, release chan struct{}) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	for _, name := range []string{"quick", "slow"} {
		mcp.AddTool(server, &mcp.Tool{Name: name},
			func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
				if name == "slow" {
					select {
					case <-release:
					case <-ctx.Done():
					}
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil, nil
			})
	}
	return serveMCP(t, server)
}

// serveMCP serves an MCP server, and returns the file that names it.
func serveMCP(t *testing.T, server *mcp.Server) string {
	t.Helper()
	service := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		service.CloseClientConnections()
		service.Close()
	})
	path := filepath.Join(t.TempDir(), "servers.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers":{"far":{"url":"`+service.URL+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// begin begins every attack, on each pod and with each key, and returns when devices and streams stand.
func (e *tenantAttack) begin(t *testing.T, ctx context.Context) {
	t.Helper()
	e.takeSockets(ctx)
	e.takeStreams(ctx)
	const large = 1_000_000
	body := `{"timeout_ms":9000,"args":{"a":"` + strings.Repeat("a", large) + `"}}`
	half := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"a":"` +
		strings.Repeat("a", large/2) + `"}}}`
	for i, key := range e.keys {
		url := e.pods[i%len(e.pods)].url
		session := fmt.Sprintf("%s/api/sessions/evil-%d-0", url, i)
		for range 5 {
			e.again(ctx, key, http.MethodPost, session+"/tools/work/call", body)
			e.again(ctx, key, http.MethodPost, session+"/tools/work/call", `{"mode":"async","timeout_ms":60000}`)
			e.again(ctx, key, http.MethodPost, url+"/api/tools/far__slow/call", `{"timeout_ms":30000}`)
			e.again(ctx, key, http.MethodPost, session+"/messages", `{"content":"hang"}`)
			e.again(ctx, key, http.MethodGet, url+"/api/audit?format=jsonl", "")
			e.again(ctx, key, http.MethodGet, url+"/api/tools?limit=1000", "")
		}
		const fill = "i=0; while :; do head -c 100000 /dev/zero >f$i; i=$((i+1)); done"
		for _, command := range []string{"sleep 20", fill} {
			e.again(ctx, key, http.MethodPost, url+"/api/tools/exec/call", `{"args":{"command":"`+command+`"}}`)
		}
		e.hangUp(ctx, key, url+"/mcp", half)
		e.again(ctx, key, http.MethodPost, url+"/pair", `{"device_id":"door"}`)
		e.again(ctx, key, http.MethodPost, url+"/api/pairings/ABCD-EFGH/approve", `{}`)
		e.again(ctx, "wrong", http.MethodGet, url+"/api/tools", "")
		for range 10 {
			e.unread(ctx, key, url, "/api/tools?limit=1000")
		}
	}
}

// takeSockets connects devices until the pods take no more, 150 of each key at most. The first of each key registers
// tools, and they answer nothing.
func (e *tenantAttack) takeSockets(ctx context.Context) {
	var connecting sync.WaitGroup
	for i, key := range e.keys {
		connecting.Go(func() {
			for n := range 150 {
				conn, _, status, err := bareSocket(ctx, e.pods[i%len(e.pods)].url,
					fmt.Sprintf("session_id=evil-%d-%d", i, n), key)
				if e.answers.add(status); err != nil || conn == nil {
					return
				}
				context.AfterFunc(ctx, func() { conn.Close() })
				if n == 0 {
					var tools []string
					for j := range 20 {
						tools = append(tools, fmt.Sprintf(`{"name":"t%d","description":"%s"}`, j,
							strings.Repeat("d", 1000)))
					}
					tools = append(tools, `{"name":"work","description":"d"}`)
					frame := `{"type":"register_tools","tools":[` + strings.Join(tools, ",") + `]}`
					_, _ = conn.Write(maskedText(frame))
				}
				e.running.Go(func() { _, _ = io.Copy(io.Discard, conn) })
			}
		})
	}
	connecting.Wait()
}

// takeStreams opens event streams until the pods give no more.
func (e *tenantAttack) takeStreams(ctx context.Context) {
	var seen atomic.Int64
	for i, key := range e.keys {
		for n := 0; ; n++ {
			status := openEvents(ctx, e.pods[i%len(e.pods)].url, "/api/events", key,
				net.IPv4(127, 0, 0, byte(1+n%100)), &seen, &e.running)
			if e.answers.add(status); status != http.StatusOK {
				break
			}
		}
	}
}

// again sends a request, and again when it was answered, until the attack ends.
func (e *tenantAttack) again(ctx context.Context, key, method, url, body string) {
	e.running.Go(func() {
		for ctx.Err() == nil {
			status := e.send(ctx, key, method, url, body)
			e.answers.add(status)
			waitFor(ctx, 500*time.Millisecond) // a faster attack has the kernel of this machine drop packets
		}
	})
}

// hangUp sends a request and goes before it is answered, again and again.
func (e *tenantAttack) hangUp(ctx context.Context, key, url, body string) {
	e.running.Go(func() {
		for ctx.Err() == nil {
			brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			e.send(brief, key, http.MethodPost, url, body)
			cancel()
			waitFor(ctx, 200*time.Millisecond)
		}
	})
}

// unread asks for a long list many times over one connection, and reads nothing.
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
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// honestTenant does what a tenant does in an ordinary minute.
type honestTenant struct {
	urls   []string
	rounds int
	dialed byte
}

// source returns an address to connect from that was not used before: on those of the attackers the kernel drops what
// asks for a connection while the last one from the same port ends.
func (h *honestTenant) source() net.IP {
	h.dialed++
	return net.IPv4(127, 0, 1, h.dialed)
}

// dial connects to a pod from an address of its own.
func (h *honestTenant) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: h.source()}}
	return dialer.DialContext(ctx, network, addr)
}

// round uses what the attackers take, at each pod, and wants nothing refused. How long it takes says nothing: the
// attackers are in the same process.
func (h *honestTenant) round(t *testing.T, ctx context.Context) {
	t.Helper()
	h.rounds++
	long := `{"args":{"text":"` + strings.Repeat("b", 200_000) + `"}}`
	for _, url := range h.urls {
		session := url + "/api/sessions/honest"
		for _, ask := range []struct{ method, url, body string }{
			{http.MethodGet, url + "/readyz", ""},
			{http.MethodGet, url + "/api/tools", ""},
			{http.MethodGet, url + "/api/audit?limit=1", ""},
			{http.MethodPost, session + "/tools/echo/call", long},
			{http.MethodPost, session + "/tools/echo/call", `{"args":{"text":"x"},"mode":"async"}`},
			{http.MethodPost, url + "/api/tools/far__quick/call", `{"args":{}}`},
			{http.MethodPost, session + "/messages", `{"content":"go"}`},
			{http.MethodPost, url + "/api/tools/exec/call", `{"args":{"command":"echo one >f; cat f"}}`},
			{http.MethodPost, url + "/api/tools/write/call", `{"args":{"path":"g","content":"two"}}`},
		} {
			began := time.Now()
			var status int
			var text []byte
			var err error
			for range attackedTries {
				if status, text, err = h.send(ctx, ask.method, ask.url, ask.body); err == nil {
					break
				}
			}
			if err != nil || status/100 != 2 || bytes.Contains(text, []byte(`"success":false`)) {
				t.Errorf("%s %s after %v: %d %.300s %v", ask.method, ask.url, time.Since(began), status, text, err)
			}
		}
		h.stream(t, ctx, url)
		h.connect(t, ctx, url)
	}
}

// attackedTries is how often a request is sent: the pod closes a connection over which this process has no time to ask
// for seconds.
const attackedTries = 3

// stream opens an event stream, and ends it.
func (h *honestTenant) stream(t *testing.T, ctx context.Context, url string) {
	t.Helper()
	ctx, end := context.WithCancel(ctx)
	var seen atomic.Int64
	var reading sync.WaitGroup
	defer reading.Wait()
	defer end()
	status := 0
	for try := 0; status == 0 && try < attackedTries; try++ {
		status = openEvents(ctx, url, "/api/events", fleetToken, h.source(), &seen, &reading)
	}
	if status != http.StatusOK {
		t.Errorf("an event stream: status %d", status)
	}
}

// send returns the status of an answer, and its body.
func (h *honestTenant) send(ctx context.Context, method, url, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{
		Transport: &http.Transport{DialContext: h.dial, DisableKeepAlives: true}, Timeout: 2 * waitLimit,
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// connect connects a device, and ends it.
func (h *honestTenant) connect(t *testing.T, ctx context.Context, url string) {
	t.Helper()
	dialer := websocket.Dialer{NetDialContext: h.dial, HandshakeTimeout: waitLimit}
	var conn *websocket.Conn
	var err error
	for try := 0; conn == nil && try < attackedTries; try++ {
		var resp *http.Response
		conn, resp, err = dialer.DialContext(ctx, fmt.Sprintf("ws%s/ws/chat?session_id=honest-%d",
			strings.TrimPrefix(url, "http"), h.rounds), http.Header{"Authorization": {"Bearer " + fleetToken}})
		if resp != nil {
			resp.Body.Close()
			break
		}
	}
	if conn == nil {
		t.Errorf("a device: %v", err)
		return
	}
	conn.Close()
}
