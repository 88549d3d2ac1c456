package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestProgressGoesOnBehindAPodThatStops: a pod that stops ends its streams before the call has ended. Who follows the
// call goes on where it was, and takes nothing for the end but the end.
func TestProgressGoesOnBehindAPodThatStops(t *testing.T) {
	t.Parallel()
	var streams, records atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/tools/film/call", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"call_id":"c1","mode":"async","state":"accepted"}`)
	})
	mux.HandleFunc("GET /api/calls/c1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch after := r.Header.Get("Last-Event-ID"); {
		case streams.Add(1) == 1 && after == "":
			fmt.Fprint(w, "id: 1-0\nevent: progress\ndata: {\"type\":\"progress\",\"message\":\"lens open\"}\n\n")
		case after == "1-0":
			fmt.Fprint(w, "id: 2-0\nevent: state\ndata: {\"type\":\"state\",\"state\":\"succeeded\"}\n\n")
		default:
			t.Errorf("asked to go on behind %q", after)
		}
	})
	mux.HandleFunc("GET /api/calls/c1", func(w http.ResponseWriter, _ *http.Request) {
		if records.Add(1) == 1 {
			fmt.Fprint(w, `{"call_id":"c1","state":"running","status":"executing"}`)
			return
		}
		fmt.Fprint(w, `{"call_id":"c1","state":"succeeded","status":"completed","success":true,"output":"a film"}`)
	})
	g := httptest.NewServer(mux)
	defer g.Close()
	code, out, errOut := command(t, []string{"FARHAND_URL=" + g.URL}, "call", "film", "--progress")
	if code != 0 || strings.TrimSpace(out) != "a film" || strings.Count(errOut, "lens open") != 1 {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}
