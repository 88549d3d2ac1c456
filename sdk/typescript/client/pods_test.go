package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// pod is a running `farhand serve`.
type pod struct {
	*program
	url, id  string
	settings []string
}

// startPod starts a pod and waits until it is ready. Settings are variables of its environment.
func startPod(t *testing.T, settings ...string) *pod {
	t.Helper()
	return startPodAt(t, testkit.FreeAddr(t), settings)
}

func startPodAt(t *testing.T, addr string, settings []string) *pod {
	t.Helper()
	env := append([]string{"FARHAND_ADDR=" + addr, "FARHAND_TOKEN=" + token, "FARHAND_LOG_LEVEL=warn",
		"FARHAND_DATA_DIR=off"}, settings...)
	dir, err := built()
	must(t, err)
	p := &pod{
		program: start(t, t.TempDir(), env, filepath.Join(dir, "farhand"), "serve"), url: "http://" + addr,
		settings: settings,
	}
	p.id = ready(t, p.url)
	return p
}

// ready waits until a gateway is ready, and returns the id of its pod.
func ready(t *testing.T, url string) (pod string) {
	t.Helper()
	testkit.Eventually(t, "the pod is ready", func() bool {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		pod = resp.Header.Get("X-Farhand-Pod")
		return resp.StatusCode == http.StatusOK
	})
	return pod
}

// restart ends the pod with a signal, and starts it again at its address.
func (p *pod) restart(t *testing.T, s syscall.Signal) *pod {
	t.Helper()
	must(t, p.cmd.Process.Signal(s))
	testkit.Receive(t, "the end of the pod", p.ended)
	return startPodAt(t, strings.TrimPrefix(p.url, "http://"), p.settings)
}

// environment is that of a program that calls through the pod.
func (p *pod) environment(more ...string) []string {
	return append([]string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + token}, more...)
}

// request makes a request with the token, and decodes the response.
func (p *pod) request(t *testing.T, method, path string, body, into any) {
	t.Helper()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		must(t, err)
		sent = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, sent)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %s", method, path, resp.Status, answer)
	}
	must(t, json.Unmarshal(answer, into))
}

// podOf returns the id of the pod that has a session's connection, or "".
func (p *pod) podOf(t *testing.T, session string) string {
	t.Helper()
	var list struct {
		Sessions []struct {
			SessionID string `json:"session_id"`
			Pod       string `json:"pod"`
		} `json:"sessions"`
	}
	p.request(t, http.MethodGet, "/api/sessions", nil, &list)
	for _, s := range list.Sessions {
		if s.SessionID == session {
			return s.Pod
		}
	}
	return ""
}

// road is how a device reaches the pods: like a balancer, it leads to one that it can change.
type road struct {
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	to    []string // addresses of pods, the first that answers is taken
	conns map[net.Conn]struct{}
}

// newRoad starts a road to pods.
func newRoad(t *testing.T, pods ...*pod) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &road{listener: l, conns: make(map[net.Conn]struct{})}
	r.lead(pods...)
	r.done.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		r.done.Wait()
	})
	return r
}

func (r *road) url() string { return "http://" + r.listener.Addr().String() }

// lead directs new connections to the first of the pods that answers.
func (r *road) lead(pods ...*pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = nil
	for _, p := range pods {
		r.to = append(r.to, strings.TrimPrefix(p.url, "http://"))
	}
}

// cut ends the connections that there are.
func (r *road) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

func (r *road) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out := r.dial()
		if out == nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.conns[in], r.conns[out] = struct{}{}, struct{}{}
		r.mu.Unlock()
		r.done.Go(func() { r.copy(in, out) })
		r.done.Go(func() { r.copy(out, in) })
	}
}

func (r *road) dial() net.Conn {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	for _, addr := range to {
		if out, err := net.Dial("tcp", addr); err == nil {
			return out
		}
	}
	return nil
}

func (r *road) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, to)
	delete(r.conns, from)
}

// connect connects a device whose session has its name, and waits until its tools are registered.
func connect(t *testing.T, url, name string, tools ...client.Option) (disconnect func()) {
	t.Helper()
	options := append([]client.Option{
		client.WithToken(token), client.WithSession(name), client.WithDevice(name, "", ""),
		client.WithBackoff(20*time.Millisecond, 200*time.Millisecond),
	}, tools...)
	c, err := client.New("ws"+strings.TrimPrefix(url, "http")+"/ws/chat", options...)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	disconnect = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(disconnect)
	testkit.Receive(t, "the device is registered", c.Ready())
	return disconnect
}
