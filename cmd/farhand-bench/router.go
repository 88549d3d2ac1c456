package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// routerSessions is how many sessions the callers share.
const routerSessions = 64

const (
	answerPayload = 64          // bytes of a call each way, besides its nonce
	argsText      = `{"text":"` // the arguments before the nonce
)

// routerPair is Farhand's own router between two complete pods in this process, with everything it does for a call. Its
// devices answer immediately, within Deliver.
type routerPair struct {
	asking, owning *inProcessPod
	locals         []*routing.LocalSession
}

// startRouterPair starts two pods and opens sessions at one of them.
func startRouterPair(ctx context.Context, url string) (*routerPair, error) {
	s := &routerPair{}
	var err error
	if s.asking, err = startInProcessPod(ctx, url); err != nil {
		return nil, err
	}
	if s.owning, err = startInProcessPod(ctx, url); err != nil {
		s.close()
		return nil, err
	}
	for i := range routerSessions {
		l, err := s.owning.connect(ctx, fmt.Sprintf("router-%d-%d", time.Now().UnixNano(), i), echoSpec())
		if err != nil {
			s.close()
			return nil, err
		}
		s.locals = append(s.locals, l)
	}
	return s, nil
}

// open makes a caller. It resolves the target of every call, as HTTP calls do.
func (s *routerPair) open(i int) (bench.Caller, error) {
	args := argsText + strings.Repeat("0", bench.NonceLen) + strings.Repeat("x", answerPayload) + `"}`
	target := registry.Target{SessionID: s.locals[i%len(s.locals)].Session().Key.Session}
	return &routerCaller{router: s.asking.pod.Router, target: target, args: []byte(args)}, nil
}

func (s *routerPair) close() {
	s.asking.close()
	if s.owning != nil {
		s.owning.close()
	}
}

// routerCaller calls one session repeatedly.
type routerCaller struct {
	router *routing.Router
	target registry.Target
	args   []byte
}

// Call implements bench.Caller.
func (c *routerCaller) Call() string {
	ctx := context.Background()
	args := append(json.RawMessage(nil), c.args...)
	bench.PutNonce(args[len(argsText):])
	route, err := c.router.Resolve(ctx, registry.DefaultTenant, bench.EchoTool, c.target, registry.SelectNone)
	if err != nil {
		return string(registry.AsError(err).Code)
	}
	res, err := c.router.Call(ctx, registry.Call{
		ID: registry.NewCallID(), Route: route, Args: registry.MustJSON(string(args)), Timeout: 30 * time.Second,
	})
	switch {
	case err != nil:
		return string(registry.AsError(err).Code)
	case res.Output != string(args):
		return "wrong_answer"
	default:
		return ""
	}
}

// Close implements bench.Caller.
func (*routerCaller) Close() {}

// inProcessPod is a pod without endpoints.
type inProcessPod struct {
	conn *redisstore.Conn
	bus  registry.Bus
	pod  *routing.Pod
}

func startInProcessPod(ctx context.Context, url string) (*inProcessPod, error) {
	conn, err := redisstore.Dial(ctx, redisstore.Options{URL: url})
	if err != nil {
		return nil, err
	}
	p := &inProcessPod{conn: conn, bus: conn.Bus()}
	p.pod, err = routing.NewPod(routing.PodConfig{
		Store: conn.Store(), Bus: p.bus, MaxInFlight: 1 << 16, // only the router is measured, not its limits
	})
	if err == nil {
		err = p.pod.Start(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// connect opens a session with tools whose device answers immediately.
func (p *inProcessPod) connect(
	ctx context.Context, session string, tools ...registry.ToolSpec,
) (*routing.LocalSession, error) {
	d := &instantDevice{}
	l, _, err := p.pod.Hub.Open(ctx, registry.Session{
		Key: registry.Key{Tenant: registry.DefaultTenant, Session: session},
	}, d)
	if err != nil {
		return nil, err
	}
	d.local = l
	return l, l.PutTools(ctx, tools, nil)
}

func (p *inProcessPod) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = errors.Join(p.pod.Close(ctx), p.bus.Close(ctx), p.conn.Close())
}

// instantDevice is a routing.Conn that answers with the arguments before Deliver returns.
type instantDevice struct{ local *routing.LocalSession }

// Ping implements routing.Conn. It answers immediately.
func (*instantDevice) Ping(answered func()) { answered() }

// Owner implements routing.Conn.
func (*instantDevice) Owner() share.Owner { return share.Owner{} }

// Pulse implements routing.Conn. Nothing is measured.
func (*instantDevice) Pulse() registry.Pulse { return registry.Pulse{} }

// Deliver implements routing.Conn.
func (d *instantDevice) Deliver(c routing.DeviceCall) error {
	d.local.Complete(c.ID, registry.Result{Success: true, Output: c.Args.String()}, func(bool) {})
	return nil
}

// Cancel implements routing.Conn.
func (*instantDevice) Cancel(string, string) {}

// Close implements routing.Conn.
func (*instantDevice) Close(routing.CloseCause) {}

// echoSpec is the specification of the echo tool.
func echoSpec() registry.ToolSpec {
	spec, err := registry.ToolSpec{
		Name: bench.EchoTool, Description: "Returns what it is given.",
		Parameters: json.RawMessage(`{"type":"object"}`),
	}.Normalize()
	if err != nil {
		panic(err) // a constant
	}
	return spec
}
