package api_test

import (
	"context"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

type sessionRow struct {
	SessionID    string `json:"session_id"`
	Name         string
	DeviceID     string `json:"device_id"`
	UserID       string `json:"user_id"`
	Platform     string
	Capabilities []string
	ConnectedAt  string `json:"connected_at"`
	Pod          string
	Generation   int64
	Connected    bool
	Tools        []string
}

type sessionList struct {
	Sessions   []sessionRow
	NextCursor string `json:"next_cursor"`
}

func ids(list sessionList) []string {
	var out []string
	for _, s := range list.Sessions {
		out = append(out, s.SessionID)
	}
	return out
}

func TestSessionList(t *testing.T) {
	f := threeDevices(t)
	for query, want := range map[string][]string{
		"":                                 {"s1", "s2", "s3"},
		"user_id=anna":                     {"s1", "s2"},
		"device_id=tablet":                 {"s3"},
		"label=room=hall":                  {"s1", "s3"},
		"label=room=hall&label=os=android": {"s1"},
		"tool=locate":                      {"s1", "s2"},
		"tool=door.open&user_id=anna":      nil,
	} {
		for pod := range f.pods {
			list := decode[sessionList](f.send(request{path: "/api/sessions?" + query, pod: pod}), 200)
			equal(t, query, ids(list), want)
		}
	}
	row := decode[sessionList](f.get("/api/sessions"), 200).Sessions[1]
	equal(t, "tools", row.Tools, []string{"camera.snap", "locate"})
	if row.Pod != "pod-1" || row.Generation == 0 || !row.Connected || row.DeviceID != "phone-2" {
		t.Errorf("row %+v", row)
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`).MatchString(row.ConnectedAt) {
		t.Errorf("connected_at %q", row.ConnectedAt)
	}
}

func TestSessionPages(t *testing.T) {
	f := newFleet(t, setup{})
	gone := f.connect(0, session("a"), echo)
	for _, id := range []string{"z", "b", "y", "c"} {
		f.connect(0, session(id), echo, tools("t")...)
	}
	var all []string
	path := "/api/sessions?limit=2"
	for next := path; next != ""; {
		list := decode[sessionList](f.get(next), 200)
		all = append(all, ids(list)...)
		gone.gone()
		if next = ""; list.NextCursor != "" {
			next = path + "&cursor=" + list.NextCursor
		}
	}
	equal(t, "sessions in the order of connecting", all, []string{"a", "z", "b", "y", "c"})
}

func TestGetSession(t *testing.T) {
	f := threeDevices(t)
	type detail struct {
		SessionID string `json:"session_id"`
		Labels    map[string]string
		Tools     []toolRow
	}
	for pod := range f.pods {
		s := decode[detail](f.send(request{path: "/api/sessions/s3", pod: pod}), 200)
		if s.SessionID != "s3" || s.Labels["room"] != "hall" || len(s.Tools) != 2 ||
			s.Tools[0].Parameters["type"] != "object" ||
			!s.Tools[0].Enabled || s.Tools[1].Enabled {
			t.Errorf("session %+v", s)
		}
	}
	f.connect(0, session("off"), echo).gone()
	wantProblem(f.get("/api/sessions/off"), 409, registry.CodeNotConnected)
	wantProblem(f.get("/api/sessions/nobody"), 404, registry.CodeSessionNotFound)
	p := wantProblem(f.get("/api/sessions/%2A"), 404, registry.CodeSessionNotFound)
	if p.Dispatched != "" || p.Retryable != nil {
		t.Errorf("a problem that is not about a call has members of one: %+v", p)
	}
}

func TestKick(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	for pod := range f.pods {
		d := f.connect(1, session("s1"), echo, tools("t")...)
		r := f.send(request{method: http.MethodDelete, path: "/api/sessions/s1", pod: pod})
		if r.status != http.StatusNoContent {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
		select {
		case cause := <-d.closed:
			if cause != routing.CloseKicked {
				t.Errorf("closed because %s", cause)
			}
		case <-time.After(testTimeout):
			t.Fatal("the socket stays open")
		}
		d.work.Wait()
		wantProblem(f.send(request{method: http.MethodDelete, path: "/api/sessions/s1", pod: pod}), 409,
			registry.CodeNotConnected)
	}
	wantProblem(f.send(request{method: http.MethodDelete, path: "/api/sessions/nobody"}), 404,
		registry.CodeSessionNotFound)
}

// kickNobody finds no socket: the session left between looking it up and ending it.
type kickNobody struct{}

func (kickNobody) Kick(context.Context, registry.Session) error { return registry.ErrNoReceiver }

func TestKickFindsNoSocket(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Kicker = kickNobody{} }})
	f.connect(0, session("s1"), echo)
	wantProblem(f.send(request{method: http.MethodDelete, path: "/api/sessions/s1"}), 409, registry.CodeNotConnected)
}
