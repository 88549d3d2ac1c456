package farhand_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/redisstore/redistest"
)

// pairingPods are pods on one Redis.
type pairingPods struct {
	*testing.T
	urls []string
	log  *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newPairingPods(t *testing.T, pods int, change func(*farhand.Config)) *pairingPods {
	t.Helper()
	redis := redistest.Start(t)
	p := &pairingPods{T: t, log: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for range pods {
		cfg := farhand.Config{Token: pairToken, RedisURL: farhand.Secret("redis://" + redis.Addr())}
		if change != nil {
			change(&cfg)
		}
		p.urls = append(p.urls, start(t, cfg, farhand.WithLogger(log)))
	}
	return p
}

// ask sends a request and decodes its answer into v.
func (p *pairingPods) ask(method, url, token string, header http.Header, body, v any) int {
	p.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.Context(), method, url, bytes.NewReader(text))
	if err != nil {
		p.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Error(err)
		return 0
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Error(err)
	}
	if v != nil && resp.StatusCode < 300 {
		if err := json.Unmarshal(answer, v); err != nil {
			p.Errorf("%s %s: %v: %s", method, url, err, answer)
		}
	}
	return resp.StatusCode
}

type asked struct {
	ID, Secret, Code string
	DeviceID         string `json:"device_id"`
}

type collected struct{ Status, Credential string }

// paired returns the credential of a device with a key, asked for and approved by hand.
func (p *pairingPods) paired(deviceID string, key ed25519.PublicKey, tools ...string) string {
	p.Helper()
	body := map[string]any{"device_id": deviceID, "tools": tools}
	if key != nil {
		body["public_key"] = base64.RawURLEncoding.EncodeToString(key)
	}
	var a asked
	if status := p.ask(http.MethodPost, p.urls[0]+"/pair", "", nil, body, &a); status != http.StatusCreated {
		p.Fatalf("ask: status %d", status)
	}
	if status := p.ask(http.MethodPost, p.urls[len(p.urls)-1]+"/api/pairings", pairToken, nil,
		map[string]any{"code": a.Code, "decision": "approve"}, nil); status != http.StatusOK {
		p.Fatalf("approve: status %d", status)
	}
	var c collected
	p.ask(http.MethodPost, p.urls[0]+"/pair/status", "", nil, map[string]any{"secret": a.Secret}, &c)
	if c.Status != "approved" || !strings.HasPrefix(c.Credential, "fhd_") {
		p.Fatalf("collected %+v", c)
	}
	return c.Credential
}

func (p *pairingPods) eventually(what string, ok func() bool) {
	p.Helper()
	end := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-end:
			p.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}

type shownDevice struct {
	ID       string
	Approved []struct{ Name, Hash string }
	Waiting  []struct {
		Name, Hash string
		Changed    []string
		Before     *struct{ Description string }
	}
}

func (p *pairingPods) device(pod int, id string) (d shownDevice) {
	p.Helper()
	p.ask(http.MethodGet, p.urls[pod]+"/api/devices/"+id, pairToken, nil, nil, &d)
	return d
}

// call calls a tool on a pod and returns the status.
func (p *pairingPods) call(pod int, tool string) int {
	return p.ask(http.MethodPost, p.urls[pod]+"/api/tools/"+tool+"/call", pairToken, nil, map[string]any{}, nil)
}
