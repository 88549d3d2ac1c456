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

const (
	dialAtOnce       = 64               // handshakes in flight; more only queue up in the pod
	readyTimeout     = 2 * time.Minute  // for all devices of a swarm to be registered
	handshakeTimeout = 10 * time.Second // for a connection to be upgraded
	connectTries     = 5
	connectPause     = 200 * time.Millisecond // longer after every try
)

// EchoTool is the name of the tool that callers call.
const EchoTool = "echo"

// Swarm is many devices. Each is a bare TCP connection with one goroutine, so one process can hold tens of thousands.
type Swarm struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	token  string
	frame  func(device int) []byte // register_tools of each
	slots  chan struct{}

	handshake time.Duration // for one

	sessions   []string // their ids
	registered atomic.Int64
	lost       atomic.Int64          // devices whose connection ended before the swarm
	failure    atomic.Pointer[error] // of the first of them
	changed    chan struct{}         // capacity 1: a device was registered or lost
}

// ConnectSwarm connects n devices with the given number of tools to a pod and waits until all are registered.
func ConnectSwarm(ctx context.Context, base, token, prefix string, n, tools int) (*Swarm, error) {
	names := make([]string, max(tools, 1))
	for i := range names {
		names[i] = fmt.Sprintf("tool_%02d", i)
	}
	names[0] = EchoTool
	frame := RegisterTools(names)
	return ConnectSwarmWith(ctx, base, token, prefix, n, func(int) []byte { return frame })
}

// ConnectSwarmWith is ConnectSwarm for devices with different tools. toolsOf returns the frame of the i-th device, as
// RegisterTools makes it.
func ConnectSwarmWith(
	ctx context.Context, base, token, prefix string, n int, toolsOf func(i int) []byte,
) (*Swarm, error) {
	s := newSwarm(ctx, token, toolsOf)
	if err := s.Add(base, prefix, n); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func newSwarm(ctx context.Context, token string, toolsOf func(i int) []byte) *Swarm {
	s := &Swarm{
		token: token, frame: toolsOf, handshake: handshakeTimeout,
		slots: make(chan struct{}, dialAtOnce), changed: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Add connects n more devices and waits until they are registered.
func (s *Swarm) Add(base, prefix string, n int) error {
	addr := strings.TrimPrefix(base, "http://")
	want := s.registered.Load() + int64(n)
	for i := range n {
		session := fmt.Sprintf("%s-%d", prefix, i)
		frame := s.frame(len(s.sessions))
		s.sessions = append(s.sessions, session)
		s.work.Go(func() { s.keepConnected(addr, session, frame) })
	}
	deadline := time.After(readyTimeout)
	for s.registered.Load() < want {
		if err := s.failure.Load(); err != nil {
			return fmt.Errorf("connect devices to %s: %w", base, *err)
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-deadline:
			return fmt.Errorf("connect devices to %s: %d of %d registered within %v",
				base, s.registered.Load(), want, readyTimeout)
		case <-s.changed:
		}
	}
	return nil
}

// noteChange wakes Add.
func (s *Swarm) noteChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Close disconnects the devices and waits until their goroutines have ended.
func (s *Swarm) Close() {
	s.cancel()
	s.work.Wait()
}

// Sessions returns the ids of the devices' sessions.
func (s *Swarm) Sessions() []string { return s.sessions }

// Lost returns an error if devices lost their connection.
func (s *Swarm) Lost() error {
	lost := s.lost.Load()
	if lost == 0 {
		return nil
	}
	return fmt.Errorf("%d devices lost their connection: %w", lost, *s.failure.Load())
}

// keepConnected connects one device. Like any device it retries if a busy pod rejects it before it is registered. If
// its connection ends later it does not reconnect: the pod lost it, and the figures must show that.
func (s *Swarm) keepConnected(addr, session string, frame []byte) {
	for try := 1; ; try++ {
		d := device{swarm: s, tools: frame}
		err := d.serve(addr, session)
		switch {
		case s.ctx.Err() != nil:
			return
		case d.registered || try == connectTries:
			s.lost.Add(1)
			s.failure.CompareAndSwap(nil, &err)
			s.noteChange()
			return
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(time.Duration(try) * connectPause):
		}
	}
}

// RegisterTools returns the frame that registers tools with these names. Tools with the same name are identical.
func RegisterTools(names []string) []byte {
	var b strings.Builder
	b.WriteString(`{"type":"register_tools","tools":[`)
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"description":"The tool %s of a device under load. It returns its text.",`+
			`"parameters":{"type":"object","properties":{"text":{"type":"string","description":"What %s returns."}},`+
			`"required":["text"]}}`, name, name, name)
	}
	b.WriteString(`]}`)
	return maskedFrame(opText, []byte(b.String()))
}

// device is one connection. Its buffers grow with its calls, so an idle device needs almost no memory.
type device struct {
	swarm  *Swarm
	tools  []byte // the frame that registers them
	conn   net.Conn
	stop   func() bool // stops the close of conn at the swarm's end
	reader *bufio.Reader
	in     []byte
	out    []byte

	registered bool
}

// serve connects the device and answers calls until its connection ends.
func (d *device) serve(addr, session string) error {
	if err := d.connect(addr, session); err != nil {
		return err
	}
	defer d.close()
	if _, err := d.conn.Write(d.tools); err != nil {
		return err
	}
	for {
		opcode, payload, err := readFrame(d.reader, d.in)
		if err != nil {
			return err
		}
		d.in = payload
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

// connect dials and upgrades the connection. The end of the swarm closes the connection at any time after dialling,
// whatever the pod does.
func (d *device) connect(addr, session string) error {
	s := d.swarm
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	// Without keep-alive: thousands of connections accepted in one burst would be probed in one burst.
	dialer := net.Dialer{Timeout: s.handshake, KeepAlive: -1}
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
		d.close()
	}
	return err
}

func (d *device) close() {
	d.stop()
	_ = d.conn.Close()
}

func (d *device) upgrade(addr, session string) error {
	head := fmt.Sprintf("GET /ws/chat?session_id=%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		session, addr)
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

// handle answers a call with the text of its arguments, and records a registration.
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
		d.swarm.noteChange()
	}
	return nil
}

// head returns the part of a frame that has its type.
func head(frame []byte) []byte { return frame[:min(len(frame), 64)] }

// textAfter returns the string after a mark. The texts of this package have no escapes.
func textAfter(frame []byte, mark string) []byte {
	_, rest, _ := bytes.Cut(frame, []byte(mark))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	return text
}

// Opcodes of WebSocket frames (RFC 6455).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// readFrame returns the next frame from a server. Its payload is stored in buf, or in a larger array if necessary.
func readFrame(r *bufio.Reader, buf []byte) (opcode byte, payload []byte, err error) {
	var head [10]byte
	if _, err = io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	switch n {
	case 126:
		_, err = io.ReadFull(r, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:4]))
	case 127:
		_, err = io.ReadFull(r, head[2:10])
		n = binary.BigEndian.Uint64(head[2:10])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = grow(buf, int(n))
	_, err = io.ReadFull(r, payload)
	return head[0] & 0x0f, payload, err
}

// maskedFrame encodes a masked frame, as clients must send. The mask is zero, which servers accept and which costs
// nothing.
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
