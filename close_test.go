package farhand

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// testTimeout bounds every wait of these tests for something that must come true.
const testTimeout = testkit.Limit

// nearDeadline is a context whose end is always near and never comes.
type nearDeadline struct{ context.Context }

// Deadline implements context.Context.
func (nearDeadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Millisecond), true }

// TestCloseWaitsForAnswers: a request that is ended when no gentle time is left still has its answer written, by the
// gateway's own server and by one of the program.
func TestCloseWaitsForAnswers(t *testing.T) {
	for name, serve := range map[string]func(t *testing.T, g *Gateway) string{
		"own server": func(t *testing.T, g *Gateway) string {
			g.server.Handler = g.handler
			var running sync.WaitGroup
			running.Go(func() {
				if err := g.Run(context.Background()); err != nil {
					t.Error(err)
				}
			})
			t.Cleanup(running.Wait)
			return "http://" + g.listener.Addr().String()
		},
		"server of the program": func(t *testing.T, g *Gateway) string {
			s := httptest.NewServer(g.Handler())
			t.Cleanup(s.Close)
			return s.URL
		},
	} {
		t.Run(name, func(t *testing.T) { closeWaits(t, serve) })
	}
}

func closeWaits(t *testing.T, serve func(t *testing.T, g *Gateway) string) {
	const answer = "the pod is stopping"
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(t.Context(), Config{}, WithListener(l), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	begun, closed := make(chan struct{}), make(chan error, 1)
	g.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		select {
		case err := <-closed:
			t.Errorf("closed before the answer was written: %v", err)
		case <-time.After(300 * time.Millisecond): // for a Close that does not wait to show itself
		}
		_, _ = io.WriteString(w, answer)
	})
	url := serve(t, g)
	answered := make(chan string, 1)
	go func() {
		defer close(answered)
		resp, err := http.Get(url)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	<-begun
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	closed <- g.Close(nearDeadline{ctx})
	if got := <-answered; got != answer {
		t.Errorf("the caller read %q", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// lateListener hands out a connection only some time after it was closed, as a server does that the machine keeps from
// running.
type lateListener struct {
	*net.TCPListener
	accepted, closed chan struct{}
	once             sync.Once
}

func (l *lateListener) Accept() (net.Conn, error) {
	conn, err := l.TCPListener.Accept()
	if err == nil {
		close(l.accepted)
		<-l.closed
		time.Sleep(50 * time.Millisecond) // for a Close that does not wait to be over
	}
	return conn, err
}

func (l *lateListener) Close() error {
	err := l.TCPListener.Close()
	l.once.Do(func() { close(l.closed) })
	return err
}

// TestCloseServesWhoConnectedLast: a request on a connection that the server only just accepted as the listener closed
// is answered.
func TestCloseServesWhoConnectedLast(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := &lateListener{
		TCPListener: l.(*net.TCPListener), accepted: make(chan struct{}), closed: make(chan struct{}),
	}
	g, err := New(t.Context(), Config{}, WithListener(late), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Run(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: farhand\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-late.accepted
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
	running.Wait()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("status %d, the connection closes: %t", resp.StatusCode, resp.Close)
	}
}
