package jwt

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Over HTTP/2 an issuer could have the pod answer pings all the time, also between two fetches. So it gets HTTP/1.1.
func TestIssuersGetNoHTTP2(t *testing.T) {
	protocols := make(chan string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protocols <- r.Proto
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := newTransport().(*http.Transport)
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	resp, err := (&http.Client{Transport: transport}).Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := <-protocols; got != "HTTP/1.1" {
		t.Errorf("the issuer gets %s", got)
	}
}
