package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Opcodes of WebSocket frames (RFC 6455).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

const (
	dialAtOnce       = 64               // handshakes under way at once; more only queue up in the pod
	readyTimeout     = 2 * time.Minute  // for all devices of a swarm to be registered
	handshakeTimeout = 10 * time.Second // for a connection to be upgraded
	connectTries     = 5
	connectPause     = 200 * time.Millisecond // longer after every try
)

// EchoTool is the tool callers ask for.
const EchoTool = "echo"

// Swarm is many devices, each a bare TCP connection with one goroutine, so that one process bears tens of thousands.
type Swarm struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	token  string
	frame  []byte // register_tools
	slots  chan struct{}

	handshake time.Duration // for one

	sessions   []string // their ids
	registered atomic.Int64
	refused    atomic.Int64 // connections that ended before they were registered
	lost       atomic.Int64 // connections that ended later, but before the swarm did
	failure    atomic.Pointer[error]
}

// ConnectSwarm connects n devices with the given number of tools to a pod and waits until all are registered.
func ConnectSwarm(ctx context.Context, base, token, prefix string, n, tools int) (*Swarm, error) {
	s := &Swarm{
		token: token, frame: maskedFrame(opText, []byte(registerTools(tools))), slots: make(chan struct{}, dialAtOnce),
		handshake: handshakeTimeout,
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if err := s.Add(base, prefix, n); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Add connects n more devices and waits until they are registered.
func (s *Swarm) Add(base, prefix string, n int) error {
	addr := strings.TrimPrefix(base, "http://")
	want := s.registered.Load() + int64(n)
	for i := range n {
		session := fmt.Sprintf("%s-%d", prefix, i)
		s.sessions = append(s.sessions, session)
		s.work.Go(func() { s.live(addr, session) })
	}
	deadline := time.After(readyTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.registered.Load() < want {
		if err := s.failure.Load(); err != nil {
			return fmt.Errorf("connect devices to %s: %w", base, *err)
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-deadline:
			return fmt.Errorf("connect devices to %s: %d of %d registered within %v", base, s.registered.Load(), want, readyTimeout)
		case <-tick.C:
		}
	}
	return nil
}

// Close disconnects the devices and waits until their goroutines are gone.
func (s *Swarm) Close() {
	s.cancel()
	s.work.Wait()
}

// Sessions returns the ids of the devices' sessions.
func (s *Swarm) Sessions() []string { return s.sessions }

// Lost returns an error if devices were cut off that were registered.
func (s *Swarm) Lost() error {
	lost := s.lost.Load()
	if lost == 0 {
		return nil
	}
	return fmt.Errorf("%d devices were cut off: %w", lost, *s.failure.Load())
}

// live is the life of one device. One that a busy pod sends away before it is registered comes back, as any would; one
// that is cut off later stays away: what is measured then is the pod's fault.
func (s *Swarm) live(addr, session string) {
	for try := 1; ; try++ {
		d := device{swarm: s}
		err := d.run(addr, session)
		switch {
		case s.ctx.Err() != nil:
			return
		case d.registered || try == connectTries:
			s.lost.Add(1)
			s.failure.CompareAndSwap(nil, &err)
			return
		}
		s.refused.Add(1)
		select {
		case <-s.ctx.Done():
		case <-time.After(time.Duration(try) * connectPause):
		}
	}
}

// registerTools is the frame that registers tools: the echo and, beside it, ones that are only there.
func registerTools(n int) string {
	var b strings.Builder
	b.WriteString(`{"type":"register_tools","tools":[`)
	for i := range max(n, 1) {
		name := EchoTool
		if i > 0 {
			b.WriteByte(',')
			name = fmt.Sprintf("tool_%02d", i)
		}
		fmt.Fprintf(&b, `{"name":%q,"description":"Tool %d of a device under load. It returns the text it is given.",`+
			`"parameters":{"type":"object","properties":{"text":{"type":"string","description":"What to return."}},"required":["text"]}}`, name, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

// device is one connection. Its buffers grow with the calls it gets: an idle one keeps next to nothing.
type device struct {
	swarm  *Swarm
	conn   net.Conn
	stop   func() bool // the end of the swarm no longer closes conn
	reader *bufio.Reader
	in     []byte
	out    []byte

	registered bool
}

func (d *device) run(addr, session string) error {
	if err := d.connect(addr, session); err != nil {
		return err
	}
	defer d.hangUp()
	if _, err := d.conn.Write(d.swarm.frame); err != nil {
		return err
	}
	for {
		opcode, payload, err := d.read()
		if err != nil {
			return err
		}
		switch opcode {
		case opText:
			err = d.handle(payload)
		case opPing:
			_, err = d.conn.Write(maskedFrame(opPong, payload))
		case opClose:
			err = fmt.Errorf("the pod closed the connection: %q", payload)
		}
		if err != nil {
			return err
		}
	}
}

// connect dials and has the connection upgraded. From the dialling on the end of the swarm closes it, whatever the pod
// says or does not say.
func (d *device) connect(addr, session string) error {
	s := d.swarm
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: -1} // thousands accepted in one burst would be probed in one
	conn, err := dialer.DialContext(s.ctx, "tcp", addr)
	if err != nil {
		return err
	}
	d.conn, d.reader = conn, bufio.NewReaderSize(conn, 512)
	d.stop = context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(s.handshake))
	if err = d.upgrade(addr, session); err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		d.hangUp()
	}
	return err
}

func (d *device) hangUp() {
	d.stop()
	_ = d.conn.Close()
}

func (d *device) upgrade(addr, session string) error {
	head := fmt.Sprintf("GET /ws/chat?session_id=%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", session, addr)
	if d.swarm.token != "" {
		head += "Authorization: Bearer " + d.swarm.token + "\r\n"
	}
	if _, err := io.WriteString(d.conn, head+"\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(d.reader, nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = errors.New(resp.Status)
	}
	return err
}

// read returns the next frame. Its payload is valid until the next call.
func (d *device) read() (opcode byte, payload []byte, err error) {
	var head [10]byte
	if _, err = io.ReadFull(d.reader, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	switch n {
	case 126:
		_, err = io.ReadFull(d.reader, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:4]))
	case 127:
		_, err = io.ReadFull(d.reader, head[2:10])
		n = binary.BigEndian.Uint64(head[2:10])
	}
	if err != nil {
		return 0, nil, err
	}
	d.in = grow(d.in, int(n))
	_, err = io.ReadFull(d.reader, d.in)
	return head[0] & 0x0f, d.in, err
}

// handle answers a call with the text it came with, and takes note of a registration.
func (d *device) handle(frame []byte) error {
	switch {
	case bytes.Contains(head(frame), []byte(`"tool_call_request"`)):
		id, text := textAfter(frame, `"id":"`), textAfter(frame, `"args":{"text":"`)
		d.out = append(d.out[:0], `{"type":"tool_result","id":"`...)
		d.out = append(d.out, id...)
		d.out = append(d.out, `","output":"`...)
		d.out = append(d.out, text...)
		d.out = append(d.out, `","success":true}`...)
		_, err := d.conn.Write(maskedFrame(opText, d.out))
		return err
	case bytes.Contains(head(frame), []byte(`"tools_registered"`)):
		if bytes.Contains(frame, []byte(`"rejected"`)) {
			return fmt.Errorf("tools were rejected: %s", frame)
		}
		d.in, d.out, d.registered = nil, nil, true // the buffers were for the handshake
		d.swarm.registered.Add(1)
	}
	return nil
}

// head is the part of a frame where its type stands.
func head(frame []byte) []byte { return frame[:min(len(frame), 64)] }

// textAfter returns the string that follows a mark. The texts of this package hold nothing that is escaped.
func textAfter(frame []byte, mark string) []byte {
	_, rest, _ := bytes.Cut(frame, []byte(mark))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	return text
}

// maskedFrame encodes a frame as a client must: masked. The mask is zero, which every server takes and nobody pays for.
func maskedFrame(opcode byte, payload []byte) []byte {
	b := make([]byte, 0, 14+len(payload))
	b = append(b, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(b, 0, 0, 0, 0)
	return append(b, payload...)
}
