package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// event is a server-sent event.
type event struct {
	id, kind string
	data     []byte
}

// callEvent is a line of a call's log as a client reads it.
type callEvent struct {
	CallID   string `json:"call_id"`
	Type     string
	State    registry.State
	Progress *float64
	Total    *float64
	Message  string
	Chunk    string
	At       string
}

// readEvent reads the next event, skipping comments. It reports false at the end of the stream.
func readEvent(t *testing.T, in *bufio.Reader) (event, bool) {
	var e event
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if line != "" || e.kind != "" || e.data != nil {
				t.Errorf("the stream ends inside an event: %q", line)
			}
			return event{}, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data = []byte(value)
		case "":
			if e.kind != "" || e.data != nil {
				return e, true
			}
		case ":":
		default:
			t.Errorf("a line that is no part of an event: %q", line)
		}
	}
}

func parseEvents(t *testing.T, body io.Reader) []event {
	var all []event
	for in := bufio.NewReader(body); ; {
		e, ok := readEvent(t, in)
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

// following is an open stream.
type following struct {
	*testing.T
	events     chan event // closed at the end of the stream
	disconnect context.CancelFunc
}

// follow opens a stream on a pod, behind the event with id after. The stream is being served when it returns.
func (f *fleet) follow(pod int, path, after string) *following {
	return f.followBy(pod, token, path, after)
}

// followAs opens a stream on the first pod with a token of one's own.
func (f *fleet) followAs(user, path string) *following { return f.followBy(0, user, path, "") }

func (f *fleet) followBy(pod int, token, path, after string) *following {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	server := f.pods[pod].server
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	f.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := server.Client().Do(req)
	f.must(err)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("X-Farhand-Pod") == "" {
		f.Fatalf("%s: status %d, headers %v", path, resp.StatusCode, resp.Header)
	}
	s := &following{T: f.T, events: make(chan event, 1024), disconnect: cancel}
	go func() {
		defer resp.Body.Close()
		defer close(s.events)
		in := bufio.NewReader(resp.Body)
		for e, ok := readEvent(s.T, in); ok; e, ok = readEvent(s.T, in) {
			s.events <- e
		}
	}()
	f.Cleanup(func() {
		cancel()
		for range s.events { // the end of the stream
		}
	})
	return s
}

// next returns the next event, which must be there soon.
func (s *following) next() event {
	s.Helper()
	e := await(s.T, "an event", s.events)
	if e.kind == "" {
		s.Fatal("the stream has ended")
	}
	return e
}

// end checks that the stream ends soon, without another event.
func (s *following) end() {
	s.Helper()
	if e := await(s.T, "the end of the stream", s.events); e.kind != "" {
		s.Fatalf("one more event: %+v", e)
	}
}

// read decodes the data of an event, which must be as documented.
func read[T any](t *testing.T, schema string, e event) T {
	t.Helper()
	theContract().checkEvent(t, "#/components/schemas/"+schema, e)
	var v T
	if err := json.Unmarshal(e.data, &v); err != nil {
		t.Fatalf("event %+v: %v", e, err)
	}
	return v
}

// states reads events to the end of the stream and returns the states they tell.
func (s *following) states() (states []registry.State, ids []string) {
	s.Helper()
	for {
		e := await(s.T, "an event, or the end of the stream", s.events)
		if e.kind == "" {
			return states, ids
		}
		if e.kind == registry.CallEventState {
			states = append(states, read[callEvent](s.T, "CallEvent", e).State)
		}
		ids = append(ids, e.id)
	}
}
