package nodetools

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

//go:embed page.html page.js
var pageFiles embed.FS

// pageHeaders are what every answer has. The page may run what it is told to, and reach nothing but this server, beside
// the frame it shows; it tells nobody where it is.
func pageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self' 'unsafe-eval'; connect-src 'self'; "+
		"style-src 'unsafe-inline'; img-src data:; frame-src http: https:; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

const (
	headerTimeout = 5 * time.Second
	pageWrite     = 10 * time.Second // to write one event
	keepAlive     = 15 * time.Second
)

// Listen opens a port of loopback for the page. The URL is for the person at this machine only.
func (c *Canvas) Listen() (l net.Listener, url string, err error) {
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, "", fmt.Errorf("the canvas needs a port: %w", err)
	}
	return l, fmt.Sprintf("http://%s/%s/", l.Addr(), c.token), nil
}

// Serve serves the page until ctx ends.
func (c *Canvas) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: c.handler(l.Addr().String()), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler serves those who know the token, and come from this machine under its own address: a page of another site
// whose name suddenly means 127.0.0.1 does not.
func (c *Canvas) handler(host string) http.Handler {
	mux := http.NewServeMux()
	at := "/" + c.token + "/"
	mux.HandleFunc("GET "+at+"{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page.html")
	})
	mux.HandleFunc("GET "+at+"page.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page.js")
	})
	mux.HandleFunc("GET "+at+"frame", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "/"+c.frame+"/") // the page asks again if it did not get it
	})
	mux.HandleFunc("GET /"+c.frame+"/{$}", c.framed)
	mux.HandleFunc("GET "+at+"events", c.events)
	mux.HandleFunc("POST "+at+"value", c.takeValue)
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pageHeaders(w.Header())
		if r.Host != host {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

// events tells the page what to show, as server-sent events.
func (c *Canvas) events(w http.ResponseWriter, r *http.Request) {
	page := c.opened()
	defer c.closed(page)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		text := []byte(": still here\n\n")
		select {
		case e, open := <-page:
			if !open {
				return
			}
			data, err := json.Marshal(e.data)
			if err != nil {
				return
			}
			text = fmt.Appendf(nil, "event: %s\ndata: %s\n\n", e.kind, data)
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(pageWrite)) // else writing says what is wrong
		if _, err := w.Write(text); err != nil || out.Flush() != nil {
			return
		}
	}
}

// takeValue takes what eval has come to.
func (c *Canvas) takeValue(w http.ResponseWriter, r *http.Request) {
	var v value
	body := http.MaxBytesReader(w, r.Body, 4*maxValue)
	if err := json.NewDecoder(body).Decode(&v); err != nil {
		http.Error(w, "this is no value", http.StatusBadRequest)
		return
	}
	if !c.answered(v) {
		http.Error(w, "nobody asked", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
