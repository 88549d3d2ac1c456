package ws

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
)

// writes records what one write after the other hands to the network.
type writes struct {
	net.Conn
	all       [][]byte
	deadlines []time.Time
}

func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, bytes.Clone(p))
	return len(p), nil
}

// SetWriteDeadline notes that it was called.
func (w *writes) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

func newGatherer(c net.Conn) *corkedConn {
	return &corkedConn{Conn: c, owner: &conn{server: &Server{}}, framed: true}
}

// serverFrame is a frame as a server writes it.
func serverFrame(opcode byte, n int) []byte {
	head := []byte{0x80 | opcode}
	switch {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = append(head, 126, byte(n>>8), byte(n))
	default:
		head = append(head, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(head, bytes.Repeat([]byte{'x'}, n)...)
}

func TestGathererWritesFollowingFramesTogether(t *testing.T) {
	small, large := serverFrame(websocket.TextMessage, 100), serverFrame(websocket.TextMessage, 2000)
	ping := serverFrame(websocket.PingMessage, 4)
	tests := map[string]struct {
		do   func(g *corkedConn)
		want []int // bytes of each write
	}{
		"handshake": {func(g *corkedConn) { g.framed = false; g.corked.Store(true); g.Write([]byte("HTTP/1.1 101")) },
			[]int{12}},
		"alone": {func(g *corkedConn) { g.Write(small) }, []int{102}},
		"two": {func(g *corkedConn) {
			g.corked.Store(true)
			g.Write(small)
			if written := g.Conn.(*writes).all; len(written) > 0 {
				t.Errorf("two: the first did not wait: %d writes", len(written))
			}
			g.corked.Store(false)
			g.Write(small)
		}, []int{204}},
		"a large one in two writes": {func(g *corkedConn) { g.Write(large[:1024]); g.Write(large[1024:]) },
			[]int{2004}},
		"a ping takes what waits along": {func(g *corkedConn) {
			g.corked.Store(true)
			g.Write(small)
			g.Write(ping)
		}, []int{108}},
		"too much to wait": {func(g *corkedConn) {
			g.corked.Store(true)
			g.Write(serverFrame(websocket.TextMessage, corkLimit))
		}, []int{corkLimit + 4}},
	}
	for name, tt := range tests {
		w := &writes{}
		g := newGatherer(w)
		tt.do(g)
		var got []int
		for _, p := range w.all {
			got = append(got, len(p))
		}
		if len(got) != len(tt.want) || g.held != nil {
			t.Errorf("%s: writes of %v bytes, want %v; kept: %v", name, got, tt.want, g.held)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: writes of %v bytes, want %v", name, got, tt.want)
			}
		}
	}
}

func TestGathererSetsADeadlineOnce(t *testing.T) {
	w := &writes{}
	g := newGatherer(w)
	frame := serverFrame(websocket.TextMessage, 10)
	write := func(until time.Time, more bool, want int) {
		t.Helper()
		_ = g.SetWriteDeadline(until)
		g.corked.Store(more)
		if _, err := g.Write(frame); err != nil {
			t.Fatal(err)
		}
		if len(w.deadlines) != want || want > 0 && !more && !w.deadlines[want-1].Equal(until) {
			t.Fatalf("deadlines set: %v, want %d, the last of them %v", w.deadlines, want, until)
		}
	}
	early := time.Now()
	late := early.Add(time.Minute)
	write(late, true, 0) // nothing is written yet
	write(late, false, 1)
	write(late, false, 1)
	write(early, false, 2) // of a close frame, say
	write(late, false, 3)
	g.framed = false
	if err := g.SetWriteDeadline(late); err != nil || len(w.deadlines) != 4 {
		t.Fatal("the deadline of the handshake is not set at once")
	}
}

// Over a real connection, frames that follow one another arrive in one piece; whatever their sizes and however they are
// mixed with control frames, the peer reads what was written.
func TestGathererKeepsTheStreamWhole(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	g := newGatherer(server)
	var want []byte
	received := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(client)
		received <- all
	}()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		frame := serverFrame(websocket.TextMessage, []int{0, 5, 125, 126, 1500, 20_000, 70_000}[random.IntN(7)])
		if i%7 == 0 {
			frame = serverFrame(websocket.PongMessage, random.IntN(125))
		}
		want = append(want, frame...)
		g.corked.Store(random.IntN(2) == 0)
		for _, part := range [][]byte{frame[:min(len(frame), 1024)], frame[min(len(frame), 1024):]} {
			if len(part) == 0 {
				continue
			}
			if n, err := g.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	g.corked.Store(false)
	last := serverFrame(websocket.CloseMessage, 2)
	want = append(want, last...)
	if _, err := g.Write(last); err != nil {
		t.Fatal(err)
	}
	if err := g.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-received; !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived, %d were written, equal: %v", len(got), len(want), bytes.Equal(got, want))
	}
}

// hijackable is a response writer whose connection is given to whoever hijacks it.
type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// headers checks what corkedConn takes for granted of the WebSocket library: a frame begins in a write of its own,
// which has its whole header, and after its deadline was set.
type headers struct {
	*corkedConn
	t     *testing.T
	until int // calls of SetWriteDeadline since the last frame began
}

func (h *headers) SetWriteDeadline(t time.Time) error {
	h.until++
	return h.corkedConn.SetWriteDeadline(t)
}

func (h *headers) Write(p []byte) (int, error) {
	if h.framed && h.remaining == 0 {
		if n := len(p); n < 2 || p[1]&lengthBits == 126 && n < 4 || p[1]&lengthBits == 127 && n < 10 {
			h.t.Errorf("the library writes %d bytes of a header by themselves: % x", n, p)
		}
		if h.until == 0 {
			h.t.Error("the library sets no deadline for a frame")
		}
		h.until = 0
	}
	if h.framed && h.remaining > 0 && len(p) > h.remaining {
		h.t.Errorf("the library writes %d bytes of another frame with the end of one", len(p)-h.remaining)
	}
	return h.corkedConn.Write(p)
}

// A new version of the WebSocket library that writes its frames in another way is found here, whatever the sizes of
// frames and of its buffer.
func TestTheLibraryWritesWholeHeaders(t *testing.T) {
	end, other := net.Pipe()
	defer end.Close()
	defer other.Close()
	w := &writes{Conn: end}
	h := &headers{corkedConn: newGatherer(w), t: t}
	h.framed = false
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for name, value := range map[string]string{
		"Connection": "upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13",
		"Sec-Websocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		r.Header.Set(name, value)
	}
	upgrader := websocket.Upgrader{
		ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, WriteBufferPool: &sync.Pool{},
	}
	conn, err := upgrader.Upgrade(hijackable{httptest.NewRecorder(), h}, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.framed = true
	for _, n := range []int{0, 1, 125, 126, writeBuffer - 1, writeBuffer, writeBuffer + 1, 1<<16 - 1, 1 << 16, 3e5} {
		w.all, h.until = nil, 0
		send := func(text []byte) {
			t.Helper()
			if err := conn.WriteMessage(websocket.TextMessage, text); err != nil {
				t.Fatal(err)
			}
		}
		text := bytes.Repeat([]byte{'x'}, n)
		h.corked.Store(true)
		send(text)
		if n < corkLimit/2 && len(w.all) != 0 {
			t.Errorf("a frame of %d bytes is not held back: %d writes", n, len(w.all))
		}
		h.corked.Store(false)
		send(text)
		if err := conn.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat(serverFrame(websocket.TextMessage, n), 2)
		want = append(append(want, 0x80|websocket.PingMessage, 4), "ping"...)
		if got := bytes.Join(w.all, nil); !bytes.Equal(got, want) || h.remaining != 0 || h.held != nil {
			t.Errorf("two frames of %d bytes and a ping: %d bytes written, want %d; %d bytes to come", n, len(got),
				len(want), h.remaining)
		}
		if n < corkLimit/2 && len(w.all) != 2 {
			t.Errorf("two frames of %d bytes and a ping: %d writes", n, len(w.all))
		}
	}
}

func TestLazyFramesLeaveWithTheNext(t *testing.T) {
	o, r := newOutbox(1 << 20)
	if err := o.pushLazily([]byte("ack"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if r.woken != 0 {
		t.Fatal("it does not wait")
	}
	if err := o.push([]byte("call")); err != nil {
		t.Fatal(err)
	}
	if got := r.all(); got != "ack+ call" || r.woken != 1 {
		t.Fatalf("handed over: %s", got)
	}
	if err := o.pushLazily([]byte("last"), time.Hour); err != nil {
		t.Fatal(err)
	}
	drained := o.seal()
	if isClosed(drained) || r.woken != 2 {
		t.Fatal("sealing does not hand over what waits")
	}
	if got := r.all(); got != "ack+ call last" || !isClosed(drained) {
		t.Fatalf("handed over: %s", got)
	}
}

// A frame that may wait less than those before it decides when all of them leave.
func TestTheLeastLazyFrameDecides(t *testing.T) {
	woken := make(wakeups, 4)
	o := &outbox{limit: 1 << 20, writer: woken}
	o.start([]byte("start"))
	o.next()
	for _, f := range []struct {
		frame string
		delay time.Duration
	}{{"slow", time.Hour}, {"slower", 2 * time.Hour}, {"soon", time.Millisecond}} {
		if err := o.pushLazily([]byte(f.frame), f.delay); err != nil {
			t.Fatal(err)
		}
	}
	<-woken
	if frames, _ := o.waiting(); frames != 3 {
		t.Errorf("%d frames leave", frames)
	}
	o.discard()
}

// wakeups is a waker that says when it was called.
type wakeups chan struct{}

func (w wakeups) wakeWriter() { w <- struct{}{} }

func (wakeups) holdUnsent(int) (*share.Grant, error) { return nil, nil }

func TestLazyFramesDoNotWaitForever(t *testing.T) {
	woken := make(wakeups, 4)
	o := &outbox{limit: 1 << 20, writer: woken}
	o.start([]byte("start"))
	o.next()
	for _, want := range []string{"first", "second"} { // the timer is used again
		if err := o.pushLazily([]byte(want), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		<-woken
		if out, ok := o.next(); !ok || string(out.frame) != want {
			t.Fatalf("handed over: %s", out.frame)
		}
		o.next()
	}
	o.discard()
}

// TestClosingATLSSocketWritesNothing: it would wait for a device that does not read.
func TestClosingATLSSocketWritesNothing(t *testing.T) {
	near, far := net.Pipe() // whose writes wait for a reader
	defer far.Close()
	cert, key := testkit.Certificate(t, t.TempDir(), time.Now().AddDate(1, 0, 0))
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true})
	trust := testkit.TrustOf(t, cert)
	trust.ServerName = "localhost"
	ready := make(chan error, 1)
	go func() { ready <- server.Handshake() }()
	if err := errors.Join(tls.Client(far, trust).Handshake(), <-ready); err != nil {
		t.Fatal(err)
	}
	go newGatherer(server).Close() //nolint:errcheck // nothing depends on it
	if n, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
