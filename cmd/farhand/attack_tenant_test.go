package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// hostileTime also says by what the other tenant is judged: on a machine with nothing else to do, by the clock.
var hostileTime = flag.Duration("hostile", 2*attackTime,
	"how long TestAttackHostileTenant goes on; if set, the other tenant's p99 is judged by the clock alone")

const (
	hostileTenant = "evil" // of the attackers. The honest caller is of the default one
	hostileKeys   = 8      // of as many users

	// attackedWorkspace is what a workspace may hold while programs attack the disk, in bytes. A program is ended when
	// a look at its workspace finds more: a disk writes many times that much between two looks.
	attackedWorkspace = 4 << 20
	attackedDisk      = 10 * hostileKeys * attackedWorkspace
)

// TestAttackHostileTenant: one tenant takes all it can of everything a pod has, all at once, and another one works. Its
// requests are served in time, none is refused, and the pods say that they are ready.
func TestAttackHostileTenant(t *testing.T) {
	release := make(chan struct{})
	hostile := scriptedHostility(t, release)
	quiet := append(hostile.settings(t), "FARHAND_REDIS_URL="+redistest.Start(t).URL(), redisMayStall)
	control := startLimited(t, plainProgram(t), quiet...)
	a := startBeside(t, control, 2, hostile.settings(t)...)
	e := &tenantAttack{Pods: []string{a.pods[0].url, a.pods[1].url}}
	for i := range hostileKeys {
		e.Keys = append(e.Keys, keyFor(t, e.Pods[0], fmt.Sprintf(
			`{"tenant":"%s","roles":["device","caller","approver","admin"],"user_id":"user-%d"}`, hostileTenant, i)))
		e.Links = append(e.Links, heldLink(t, e.pod(i), e.Keys[i], fmt.Sprint("evil-link-", i), 1<<20))
	}
	e.putToSleep(t, hostile.hook)
	asks, same := honestAsks(t, e.Pods...), honestAsks(t, control.url)
	disk := watchDisk(t, hostile.disks[1])
	a.under(t, 8*waitLimit+*hostileTime, func(ctx context.Context) {
		defer close(release)
		evil := startAttackers(t, e)
		before := lookAtMachine(t)
		served := startAsking(t, asks, "HONEST_ROUNDS=3", "HONEST_NETWORK=127.0.1")
		beside := startAsking(t, same, "HONEST_ROUNDS=3", "HONEST_NETWORK=127.0.2")
		waitFor(ctx, *hostileTime)
		served.stop(t)
		beside.stop(t)
		left := lookAtMachine(t).leftSince(before)
		evil.stop(t)
		evil.report(t)
		judgeServed(t, served, beside, asks, left)
	})
	a.peakBelow(t, 700)
	a.calmWithin(t, 5*time.Second)
	t.Logf("Redis holds %d MiB", a.redisBytes(t)>>20)
	if most := disk(); most > attackedDisk {
		t.Errorf("workspaces held %d MiB, want at most %d", most>>20, attackedDisk>>20)
	}
}

// judgeServed wants nothing refused to the honest tenant, and its p99 as that of any honest call under attack: by the
// control's, if others use the machine.
func judgeServed(t *testing.T, served, control *honestCaller, asks []honestAsk, left float64) {
	t.Helper()
	served.table(t, asks, control)
	served.wantServed(t, left)
	control.wantServed(t, left)
	limit := patienceFor(control.p99(), left)
	if *hostileTime != 2*attackTime {
		limit = honestP99
	}
	if p99 := served.p99(); p99 > limit {
		t.Errorf("the other tenant: p99 %v, want at most %v; %.0f %% of the machine were left to this test", p99,
			limit, 100*left)
	}
}

// hostility is what pods under attack are set up with.
type hostility struct {
	model   *scripted.Server
	servers string // the file of MCP servers
	hook    string // the address of a webhook that answers nothing
	disks   []string
}

// scriptedHostility makes a model, an MCP server and a webhook that do not answer those who ask them to hang, until
// release is closed.
func scriptedHostility(t *testing.T, release chan struct{}) *hostility {
	t.Helper()
	h := &hostility{servers: sharedServer(t, release)}
	h.model = scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		if _, said := lastOf(r); strings.Contains(said, "hang") {
			return scripted.Reply(scripted.Hold(release), scripted.Text("done"))
		}
		return scripted.Reply(scripted.Text("done"))
	})
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		hook.CloseClientConnections()
		hook.Close()
	})
	h.hook = hook.URL
	return h
}

// settings returns the settings of pods with a disk of their own, whose callers may run any command and upload files,
// and whose tool wipe always needs approval.
func (h *hostility) settings(t *testing.T) []string {
	t.Helper()
	disk, err := os.MkdirTemp("/var/tmp", "farhand-attack") // programs of another user pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(disk) })
	if err := os.Chmod(disk, 0o711); err != nil {
		t.Fatal(err)
	}
	h.disks = append(h.disks, disk)
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(rules, []byte("version: 1\ntools:\n"+
		"  - {id: wipes, names: [wipe], approval: always}\n"+
		"  - {id: default:programs, names: [exec], approval: never, resources: {maxProcesses: 4}}\n"+
		"  - {id: default:programs-on-the-host, names: [exec], programs: {security: full}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(agentSettings(providerOpenAI, h.model), "FARHAND_PAIRING=open", "FARHAND_TRUSTED_PROXIES=127.0.0.0/8",
		"FARHAND_BLOB_URL=file://"+t.TempDir(), "FARHAND_MCP_SERVERS="+h.servers, "FARHAND_PRIVATE_URLS=true",
		"FARHAND_WAKE_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"FARHAND_BUILTIN_TOOLS=exec,write", "FARHAND_POLICY_FILE="+rules, "FARHAND_WORKSPACE_DIR="+disk,
		fmt.Sprintf("FARHAND_WORKSPACE_BYTES=%d", attackedWorkspace), "FARHAND_WORKSPACE_FILES=200",
		"XDG_CACHE_HOME="+disk)
}

// watchDisk looks at a folder until the returned function is called, which returns the most bytes that it held.
func watchDisk(t *testing.T, dir string) func() int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	most := 0
	looking.Go(func() {
		for ctx.Err() == nil {
			// Unlike filepath.WalkDir, du follows paths of any length; what goes away meanwhile only makes it complain.
			out, _ := exec.Command("du", "-sk", dir).Output()
			kib := 0
			_, _ = fmt.Sscan(string(out), &kib)
			most = max(most, kib<<10)
			waitFor(ctx, 500*time.Millisecond)
		}
	})
	return func() int {
		stop()
		looking.Wait()
		t.Logf("workspaces held at most %d MiB", most>>20)
		return most
	}
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
