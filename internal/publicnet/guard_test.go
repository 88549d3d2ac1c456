package publicnet_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/testkit"
)

// Only HTTP/1.1 is spoken: with HTTP/2 a server makes its client answer as many pings and settings as it likes, and
// read megabytes of each answer ahead, whatever the reader of the answer allows.
func TestTransportSpeaksOneProtocol(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := publicnet.Guard{AllowPrivate: true}.Transport(testkit.Limit)
	t.Cleanup(transport.CloseIdleConnections)
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "HTTP/1.1" {
		t.Errorf("%s, %v", text, err)
	}
}
