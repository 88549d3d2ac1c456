package listener

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
