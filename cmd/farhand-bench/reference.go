package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// reference is the featureless server that the end-to-end figures are compared with: net/http, gorilla/websocket and
// go-redis, combined in a straightforward way with the same use of Redis. It has no identity, policy, schemas, records,
// receipts, limits or heartbeats. It implements just enough of the protocol for the devices and callers of
// cmd/farhand/bench.
type reference struct {
	pod      string
	redis    *referenceBus
	upgrader websocket.Upgrader
	ids      atomic.Uint64

	mu      sync.RWMutex
	devices map[string]*referenceDevice
	waiting map[string]chan string
}

// serveReference serves until ctx ends.
func serveReference(ctx context.Context, redisURL, pod string, lookup bool, ready func(addr string)) error {
	s := &reference{
		pod: pod, devices: make(map[string]*referenceDevice), waiting: make(map[string]chan string),
		upgrader: websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024, WriteBufferPool: &sync.Pool{}},
	}
	var err error
	if s.redis, err = newReferenceBus(ctx, redisURL, pod, lookup, s.deliver, s.resolve); err != nil {
		return err
	}
	defer s.redis.close()
	listen := net.ListenConfig{KeepAlive: -1}
	listener, err := listen.Listen(ctx, "tcp", anyAddr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/chat", s.device)
	mux.HandleFunc("POST /api/sessions/{id}/tools/{name}/call", s.call)
	server := &http.Server{Handler: mux}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	ready(listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// call sends a call to the device, on any pod, and waits for its answer.
func (s *reference) call(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Args json.RawMessage `json:"args"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := referenceEnvelope{
		ID: fmt.Sprintf("%s-%d", s.pod, s.ids.Add(1)), Session: r.PathValue("id"), Tool: r.PathValue("name"),
		Args: body.Args, ReplyTo: s.pod,
	}
	answer := make(chan string, 1)
	s.mu.Lock()
	s.waiting[e.ID] = answer
	d := s.devices[e.Session]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, e.ID)
		s.mu.Unlock()
	}()
	if d != nil {
		d.request(e)
	} else if err := s.redis.call(r.Context(), e); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case output := <-answer:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(struct {
			Success bool   `json:"success"`
			Output  string `json:"output"`
		}{true, output})
	case <-timer.C:
		http.Error(w, "timeout", http.StatusGatewayTimeout)
	case <-r.Context().Done():
	}
}

// deliver writes a call of another pod to the device.
func (s *reference) deliver(e referenceEnvelope) {
	s.mu.RLock()
	d := s.devices[e.Session]
	s.mu.RUnlock()
	if d != nil {
		d.request(e)
	}
}

// resolve passes an answer to the request that waits for it.
func (s *reference) resolve(id, output string) {
	s.mu.RLock()
	answer := s.waiting[id]
	s.mu.RUnlock()
	if answer != nil {
		select {
		case answer <- output:
		default:
		}
	}
}

// referenceDevice is a connected device. The goroutine of each call writes it.
type referenceDevice struct {
	mu   sync.Mutex
	conn *websocket.Conn
	asks map[string]string // call → pod that waits
}

func (d *referenceDevice) request(e referenceEnvelope) {
	frame, err := json.Marshal(struct {
		Type string          `json:"type"`
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}{"tool_call_request", e.ID, e.Tool, e.Args})
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asks[e.ID] = e.ReplyTo
	_ = d.conn.WriteMessage(websocket.TextMessage, frame)
}

// device serves one WebSocket. The request's goroutine reads.
func (s *reference) device(w http.ResponseWriter, r *http.Request) {
	conn, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	session := r.URL.Query().Get("session_id")
	d := &referenceDevice{conn: conn, asks: make(map[string]string)}
	s.mu.Lock()
	s.devices[session] = d
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.devices, session)
		s.mu.Unlock()
	}()
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			return
		}
		var f struct {
			Type   string `json:"type"`
			ID     string `json:"id"`
			Output string `json:"output"`
		}
		if json.Unmarshal(data, &f) != nil {
			return
		}
		switch f.Type {
		case "register_tools":
			if s.redis.own(r.Context(), session) != nil {
				return
			}
			d.mu.Lock()
			err = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"tools_registered"}`))
			d.mu.Unlock()
		case "tool_result":
			s.answer(d, f.ID, f.Output)
		}
		if err != nil {
			return
		}
	}
}

func (s *reference) answer(d *referenceDevice, id, output string) {
	d.mu.Lock()
	pod := d.asks[id]
	delete(d.asks, id)
	d.mu.Unlock()
	if pod == s.pod {
		s.resolve(id, output)
	} else if pod != "" {
		s.redis.reply(strings.Clone(pod), id, output)
	}
}
