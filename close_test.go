package farhand

import (
	"context"
	"io"
	"log/slog"
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
