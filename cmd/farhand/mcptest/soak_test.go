package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

var soakTime = flag.Duration("soak", 8*time.Second, "how long TestSoak runs; a minute shows more")

// Numbers of TestSoak. One tenant has no devices: whatever its clients hear of devices is another tenant's.
const (
	soakTenants = 5
	soakClients = 20 // of each tenant
	soakDevices = 10 // of each tenant; and of the tenant without devices its share goes to the others
	soakPause   = 400 * time.Millisecond
)

// TestSoak has a hundred clients use fifty devices while pods are killed and devices come and go. No answer may be
// another call's, no listing and no notification another tenant's, and nothing may stay when all have left.
func TestSoak(t *testing.T) {
	s := &soak{fleet: startFleet(t, "FARHAND_POD_LEASE=2s", "FARHAND_SESSION_TTL=6s")}
	survivor := s.pods[0]
	before := survivor.goroutines(t)
	s.run(t)
	after := survivor.goroutines(t)
	for end := time.Now().Add(waitLimit); after.total() > before.total()+soakSpare; after = survivor.goroutines(t) {
		if time.Now().After(end) {
			t.Errorf("the pod that was not killed has more goroutines:\n%s", strings.Join(after.grown(before), "\n"))
			break
		}
		http.DefaultClient.CloseIdleConnections()
	}
	t.Logf("%d calls answered, %d broken off, %d failed as they may, %d cancelled; %d changes heard; goroutines %d, %d",
		s.answered.Load(), s.broken.Load(), s.failed.Load(), s.cancelled.Load(), s.changes.Load(), before.total(),
		after.total())
	if s.answered.Load() < int64(*soakTime/time.Second)*soakClients || s.changes.Load() == 0 {
		t.Error("hardly anything happened")
	}
}

// soakSpare is how many goroutines may be there that were not before.
const soakSpare = 10

// soak is what goes on, and how often.
type soak struct {
	*fleet
	last []*soaker // of each tenant with devices one, to look at what is left

	answered, broken, failed, cancelled, changes atomic.Int64
}

func (s *soak) run(t *testing.T) {
	var devices, clients sync.WaitGroup
	defer devices.Wait()
	connected, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	transport := &http.Transport{MaxIdleConnsPerHost: soakTenants * soakClients}
	defer transport.CloseIdleConnections()
	var all []*soaker
	for i := range soakTenants {
		tenant := fmt.Sprintf("tenant%d", i)
		token := s.createKey(t, tenant, "caller", "device")
		if i > 0 { // the first has no devices
			s.connectDevices(t, connected, &devices, tenant, token, soakDevices*soakTenants/(soakTenants-1))
		}
		for n := range soakClients {
			c := &soaker{soak: s, tenant: tenant, devices: i > 0, rawClient: &rawClient{revision: revisions[n%4/3],
				http: &http.Client{Transport: transport}, url: s.url + "/mcp", token: token}}
			if n == 0 && c.devices {
				s.last = append(s.last, c)
			}
			all = append(all, c)
		}
	}
	s.wantAllDevices(t) // until then their tools are unknown
	ctx, cancel := context.WithTimeout(t.Context(), *soakTime)
	defer cancel()
	for _, c := range all {
		clients.Go(func() { c.use(t, ctx) })
		if c.modern() {
			clients.Go(func() { c.listen(t, ctx) })
		}
	}
	s.killPods(t, ctx)
	clients.Wait()
	s.wantAllDevices(t)
}

// wantAllDevices waits until every device that stays answers.
func (s *soak) wantAllDevices(t *testing.T) {
	t.Helper()
	for _, c := range s.last {
		for i := range soakDevices {
			name := fmt.Sprintf("%s_echo_%d", c.tenant, i)
			eventually(t, name+" answers", func() bool {
				_, err := c.request(t.Context(), "tools/call", name,
					map[string]any{"name": name, "arguments": struct{}{}}, nil)
				return err == nil
			})
		}
	}
}

// connectDevices connects the devices of a tenant through the balancer, the last two of which come and go.
func (s *soak) connectDevices(t *testing.T, ctx context.Context, all *sync.WaitGroup, tenant, token string, n int) {
	for i := range n {
		tool := func(name string, h client.Handler) client.Option {
			return client.WithTool(client.Tool{Name: fmt.Sprintf("%s_%s_%d", tenant, name, i), Description: "soaks"}, h)
		}
		options := []client.Option{client.WithToken(token), client.WithSession(fmt.Sprintf("device-%d", i)),
			tool("echo", func(_ context.Context, call client.Call) (any, error) { return string(call.Args), nil }),
			tool("slow", func(_ context.Context, call client.Call) (any, error) {
				var args struct{ Mark string }
				err := call.Bind(&args)
				call.Progress(1, 2, args.Mark)
				return string(call.Args), err
			}),
			tool("hold", func(ctx context.Context, _ client.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
		}
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := client.New("ws"+strings.TrimPrefix(s.url, "http")+"/ws/chat", options...)
				if err != nil {
					t.Error(err)
					return
				}
				running, stop := ctx, context.CancelFunc(func() {})
				if i >= n-2 {
					running, stop = context.WithTimeout(ctx, time.Second+rand.N(time.Second))
				}
				_ = c.Run(running)
				stop()
			}
		})
	}
}

// killPods kills the second and the third pod in turn, and starts them anew.
func (s *soak) killPods(t *testing.T, ctx context.Context) {
	for i := 1; ; i = 3 - i {
		select {
		case <-ctx.Done():
			return
		case <-time.After(*soakTime / 4):
		}
		s.pods[i].end(syscall.SIGKILL)
		s.pods[i] = s.startPod(t, s.pods[i].addr, "FARHAND_POD_LEASE=2s", "FARHAND_SESSION_TTL=6s")
		s.pods[i].awaitReady(t)
	}
}

// soaker is one client.
type soaker struct {
	*soak
	*rawClient
	tenant  string
	devices bool // the tenant has some
}

// use lists tools and calls them until ctx ends.
func (c *soaker) use(t *testing.T, ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if !c.modern() && n == 0 {
			if err := c.initialize(ctx); err != nil {
				c.judge(t, ctx, "initialize", err)
				n = -1
			}
		}
		switch {
		case n%8 == 0 || !c.devices:
			c.list(t, ctx)
		case n%8 == 4 && c.modern():
			c.cancel(t, ctx)
		default:
			c.call(t, ctx, []string{"echo", "slow"}[n%2])
		}
		select {
		case <-time.After(rand.N(soakPause)):
		case <-ctx.Done():
		}
	}
}

// list checks that all tools are of the client's tenant, or the gateway's own.
func (c *soaker) list(t *testing.T, ctx context.Context) {
	raw, err := c.request(ctx, "tools/list", "", map[string]any{}, nil)
	var listed struct{ Tools []struct{ Name string } }
	if err == nil {
		err = json.Unmarshal(raw, &listed)
	}
	if err != nil {
		c.judge(t, ctx, "tools/list", err)
		return
	}
	c.answered.Add(1)
	for _, tool := range listed.Tools {
		if strings.HasPrefix(tool.Name, "tenant") && (!strings.HasPrefix(tool.Name, c.tenant+"_") || !c.devices) {
			t.Errorf("%s was shown %s", c.tenant, tool.Name)
		}
	}
}

// call calls a tool of some device, and checks the answer and the progress.
func (c *soaker) call(t *testing.T, ctx context.Context, kind string) {
	mark := fmt.Sprintf("%s-%x", c.tenant, rand.Uint64())
	name := fmt.Sprintf("%s_%s_%d", c.tenant, kind, rand.IntN(soakDevices))
	raw, err := c.request(ctx, "tools/call", name, map[string]any{"name": name,
		"arguments": map[string]string{"mark": mark}, "_meta": map[string]any{"progressToken": mark}},
		func(m message) {
			if !strings.Contains(string(m.Params), mark) {
				t.Errorf("the call of %s heard %s %s", mark, m.Method, m.Params)
			}
		})
	if err != nil {
		c.judge(t, ctx, name, err)
		return
	}
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(raw, &result); err != nil || result.IsError || len(result.Content) != 1 ||
		result.Content[0].Text != `{"mark":"`+mark+`"}` {
		t.Errorf("%s with %s was answered %s", name, mark, raw)
	}
	c.answered.Add(1)
}

// cancel calls a tool that never answers, and gives up.
func (c *soaker) cancel(t *testing.T, ctx context.Context) {
	waiting, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	name := fmt.Sprintf("%s_hold_%d", c.tenant, rand.IntN(soakDevices))
	raw, err := c.request(waiting, "tools/call", name,
		map[string]any{"name": name, "arguments": struct{}{}}, nil)
	switch {
	case waiting.Err() != nil:
		c.cancelled.Add(1)
	case err != nil:
		c.judge(t, ctx, name, err)
	default:
		t.Errorf("%s was answered %s", name, raw)
	}
}

// listen hears of changes until ctx ends, and asks again when the stream breaks.
func (c *soaker) listen(t *testing.T, ctx context.Context) {
	for ctx.Err() == nil {
		_, err := c.request(ctx, "subscriptions/listen", "",
			map[string]any{"notifications": map[string]bool{"toolsListChanged": true}}, func(m message) {
				if m.Method != "notifications/tools/list_changed" {
					return
				}
				c.changes.Add(1)
				if !c.devices {
					t.Errorf("%s, without devices, heard of a change", c.tenant)
				}
			})
		if err != nil {
			c.judge(t, ctx, "subscriptions/listen", err)
		}
		select {
		case <-time.After(rand.N(soakPause)):
		case <-ctx.Done():
		}
	}
}

// mayFail are the codes of failures that killed pods explain. The tools of a device that comes back are never unknown.
var mayFail = []string{"not_connected", "connection_lost", "lost"}

// judge decides whether a failure may be.
func (c *soaker) judge(t *testing.T, ctx context.Context, what string, err error) {
	var failure *rpcError
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errBroken):
		c.broken.Add(1)
	case errors.As(err, &failure) && slices.Contains(mayFail, failure.Data.Code):
		c.failed.Add(1)
	default:
		t.Errorf("%s: %v", what, err)
	}
}
