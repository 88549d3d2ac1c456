package listener

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
)

// Of the connections that wait for the same thing as most do, the one that has waited longest is closed. So those that
// say nothing take none from a caller between two requests. One over which a request is served is not idle.
func TestTooManyIdleConnections(t *testing.T) {
	idle := NewIdle(2)
	asked, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-release
		}
	}))
	s.Config.ConnState = idle.Note
	s.Start()
	defer s.Close()
	var readers []*bufio.Reader
	connect := func(path string) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(testkit.Limit))
		readers = append(readers, bufio.NewReader(conn))
		if path != "" {
			if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	answered := func(n int) {
		t.Helper()
		resp, err := http.ReadResponse(readers[n], nil)
		if err != nil {
			t.Fatalf("connection %d: %v", n, err)
		}
		resp.Body.Close()
	}
	held := func(n int64) {
		t.Helper()
		testkit.Eventually(t, "the server has noted the connection", func() bool {
			return idle.Pool()["idle_connections"].Held == n
		})
	}
	connect("/slow")
	<-asked
	connect("/quick")
	answered(1)
	held(1)
	connect("") // says nothing
	held(2)
	for n := 3; n < 9; n++ {
		connect("")
		if _, err := readers[n-1].ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the one of the crowd that has waited longest: %v", err)
		}
	}
	connect("/quick")
	answered(9)
	held(2)
	connect("")
	if _, err := readers[1].ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the one of two callers that has waited longest: %v", err)
	}
	close(release)
	answered(0)
	if stats := idle.Pool()["idle_connections"]; stats.Held > 2 || stats.Refused[share.Pod] < 7 {
		t.Errorf("%+v", stats)
	}
}

// Requests of one HTTP/2 connection that wait for their body count like connections: the ones that wait longest end.
func TestTooManyIdleStreams(t *testing.T) {
	const most, requests = 4, 12
	idle := NewIdle(most)
	ended := make(chan error, requests)
	s := httptest.NewUnstartedServer(idle.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
	})))
	s.EnableHTTP2 = true
	s.Config.ConnState, s.Config.ConnContext = idle.Note, WithConn
	s.StartTLS()
	defer s.Close()
	bodies := make([]*io.PipeWriter, requests)
	var sending sync.WaitGroup
	for n := range bodies {
		body, w := io.Pipe()
		bodies[n] = w
		sending.Go(func() {
			resp, err := s.Client().Post(s.URL, "text/plain", body)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if resp.ProtoMajor != 2 {
				t.Errorf("over %s", resp.Proto)
			}
		})
		_, _ = w.Write([]byte("begun"))
	}
	for range requests - most {
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a request beyond the limit: %v", err)
		}
	}
	for _, w := range bodies {
		w.Close()
	}
	for range most {
		if err := <-ended; err != nil {
			t.Errorf("one within the limit: %v", err)
		}
	}
	sending.Wait()
}

// A peer that does not read cannot delay the closing of its connection: no TLS alert is written.
func TestAnEncryptedConnectionIsClosedWithoutAWord(t *testing.T) {
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
	go NewIdle(0).Note(server, http.StateNew)
	if n, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
