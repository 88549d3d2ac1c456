package conformance_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/farhand/farhand/internal/chromiumtest"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/sdk/internal/driver"
)

// openPage opens a host that is a page in Chromium. The returned function loads it again.
func openPage(t testing.TB, browser context.Context, url string) (h *driver.Host, reload func()) {
	t.Helper()
	h = &driver.Host{}
	loaded := make(chan struct{}, 16)
	tab := chromiumtest.Open(t, browser, func(text string) {
		if text == "loaded" {
			loaded <- struct{}{}
			return
		}
		h.Take(t, []byte(text))
	})
	h.Send = func(_ testing.TB, command []byte) { tab.Run("void command(" + string(command) + ")") }
	reload = func() {
		tab.Show(url)
		testkit.Receive(t, "the page", loaded)
	}
	reload()
	return h, reload
}

// pages serves what the page of a driver is made of.
func pages(dist string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /sdk/", http.StripPrefix("/sdk/", http.FileServer(http.Dir(dist))))
	drivers := http.StripPrefix("/drivers/", http.FileServer(http.Dir("drivers")))
	mux.HandleFunc("GET /drivers/", func(w http.ResponseWriter, r *http.Request) {
		if filepath.Ext(r.URL.Path) == ".mjs" {
			w.Header().Set("Content-Type", "text/javascript")
		}
		drivers.ServeHTTP(w, r)
	})
	return mux
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
