package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// herdVariable makes this program be that many devices instead of the tests.
const herdVariable = "TEST_HERD"

// herdDevices are the devices of a herd. Each is a bare TCP connection, so that one process bears them. They connect to
// the pods of the last line of the standard input, and end with it. The standard output tells what happens, a line for
// each: empty when the tools of a device are registered, and the id of each call that ran.
type herdDevices struct {
	ctx    context.Context
	events chan string

	mu   sync.Mutex
	urls []string
}

// runHerd runs the devices until the standard input ends, and reports whether this process is for that.
func runHerd() bool {
	n, err := strconv.Atoi(os.Getenv(herdVariable))
	if err != nil {
		return false
	}
	var devices, writing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := &herdDevices{ctx: ctx, events: make(chan string, 1024)}
	writing.Go(h.tell)
	lines := bufio.NewScanner(os.Stdin)
	for first := true; lines.Scan(); first = false {
		h.mu.Lock()
		h.urls = strings.Fields(lines.Text())
		h.mu.Unlock()
		for i := range n {
			if first {
				devices.Go(func() { h.live(fmt.Sprintf("herd-%d", i)) })
			}
		}
	}
	cancel()
	devices.Wait()
	close(h.events)
	writing.Wait()
	return true
}

// tell writes the events, those that are there together.
func (h *herdDevices) tell() {
	out := bufio.NewWriter(os.Stdout)
	for event := range h.events {
		fmt.Fprintln(out, event)
		if len(h.events) == 0 {
			_ = out.Flush()
		}
	}
	_ = out.Flush()
}

func (h *herdDevices) live(session string) {
	for h.ctx.Err() == nil {
		h.mu.Lock()
		url := h.urls[rand.IntN(len(h.urls))]
		h.mu.Unlock()
		_ = h.connect(strings.TrimPrefix(url, "http://"), session)
		waitFor(h.ctx, rand.N(time.Second)) // as any decent client would
	}
}

// connect lives through one connection.
func (h *herdDevices) connect(addr, session string) error {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(h.ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(h.ctx, func() { conn.Close() })()
	_, err = fmt.Fprintf(conn,
		"GET /ws/chat?session_id=%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer "+
			"%s\r\n\r\n",
		session, addr, fleetToken)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(conn, 1024)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return errors.New(resp.Status)
	}
	for _, frame := range []string{
		`{"type":"connect","v":1,"device_id":"` + session + `"}`,
		`{"type":"register_tools","tools":[{"name":"herd","description":"one of many"}]}`,
	} {
		if _, err := conn.Write(maskedText(frame)); err != nil {
			return err
		}
	}
	for {
		opcode, payload, err := readFrame(r)
		if err != nil {
			return err
		}
		switch {
		case opcode == 1 && strings.Contains(string(payload), `"tools_registered"`):
			h.events <- ""
		case opcode == 1 && strings.Contains(string(payload), `"tool_call_request"`):
			if err := h.answer(conn, payload); err != nil {
				return err
			}
		case opcode == 9: // a device that does not answer is dropped after a minute
			if _, err := conn.Write(masked(0x8a, string(payload))); err != nil {
				return err
			}
		case opcode == 8:
			return io.EOF
		}
	}
}

func (h *herdDevices) answer(conn net.Conn, request []byte) error {
	var call struct{ ID string }
	if err := json.Unmarshal(request, &call); err != nil {
		return err
	}
	h.events <- call.ID
	_, err := conn.Write(maskedText(`{"type":"tool_result","id":"` + call.ID + `","output":"ok"}`))
	return err
}

// maskedText encodes a short text frame as a client sends it.
func maskedText(text string) []byte { return masked(0x81, text) }

// masked encodes a frame; the mask is zero.
func masked(opcode byte, payload string) []byte {
	head := []byte{opcode, 0x80 | byte(len(payload))}
	switch n := len(payload); {
	case n > math.MaxUint16:
		head = binary.BigEndian.AppendUint64([]byte{opcode, 0x80 | 127}, uint64(n))
	case n > 125:
		head = binary.BigEndian.AppendUint16([]byte{opcode, 0x80 | 126}, uint16(n))
	}
	return append(append(head, 0, 0, 0, 0), payload...)
}

// readFrame reads one unfragmented frame of a server.
func readFrame(r *bufio.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	if n >= 126 {
		wide := make([]byte, 2+6*(n-126))
		if _, err = io.ReadFull(r, wide); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(append(make([]byte, 8-len(wide)), wide...))
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return head[0] & 0x0f, payload, err
}
