package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// presence is what rows say of a connection.
type presence struct {
	SessionID   string `json:"session_id"`
	DeviceID    string `json:"device_id"`
	Online      *bool  `json:"online"`
	RoundTripMS *int64 `json:"round_trip_ms"`
	LastPong    string `json:"last_pong"`
}

func (p presence) String() string {
	online, trip := "unknown", "unknown"
	if p.Online != nil {
		online = fmt.Sprint(*p.Online)
	}
	if p.RoundTripMS != nil {
		trip = fmt.Sprint(*p.RoundTripMS)
	}
	return fmt.Sprintf("%s%s online %s, %s ms, at %q", p.SessionID, p.DeviceID, online, trip, p.LastPong)
}

// Lists of sessions and of one session say that the device is there, how far away and since when nothing was heard of
// it, on every pod; what is not known they leave out.
func TestSessionsSayHowTheirDevicesAre(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"memory": "", "Redis": redistest.Single(t)} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, setup{pods: 2, redis: url})
			at := time.Date(2026, 1, 31, 12, 0, 0, 42e6, time.UTC)
			heard, quiet := f.connect(0, session("heard"), echo), f.connect(0, session("quiet"), echo)
			heard.pulse.Store(&registry.Pulse{At: at, RoundTrip: 37 * time.Millisecond})
			quiet.pulse.Store(&registry.Pulse{At: at})
			f.connect(0, session("new"), echo)
			f.pods[0].HandleGap() // its sessions are refreshed
			const want = `heard online true, 37 ms, at "2026-01-31T12:00:00.042Z"`
			rows := func() string {
				var list struct{ Sessions []presence }
				f.send(request{pod: 1, path: "/api/sessions"}).want(http.StatusOK).into(&list)
				return fmt.Sprint(list.Sessions)
			}
			f.eventually("the refresh", func() bool { return strings.Contains(rows(), "37 ms") })
			if got := rows(); got != "["+want+
				` quiet online true, unknown ms, at "2026-01-31T12:00:00.042Z" new online true, unknown ms, at ""]` {
				t.Errorf("listed: %s", got)
			}
			var one presence
			if f.send(request{pod: 1, path: "/api/sessions/heard"}).want(http.StatusOK).into(&one); one.String() != want {
				t.Errorf("alone: %s", one)
			}
		})
	}
}

// Lists of paired devices say the same, with one look for all devices of a page.
func TestDevicesSayWhetherTheyAreOnline(t *testing.T) {
	t.Parallel()
	f, _ := newTrusting(t)
	f.pairs()
	rows := func() (row string) {
		f.eventually("both say the same", func() bool { // a refresh may come between them
			var list struct{ Devices []presence }
			var one presence
			f.as("ann", request{path: "/api/devices"}).want(http.StatusOK).into(&list)
			f.as("ann", request{path: "/api/devices/cam-1"}).want(http.StatusOK).into(&one)
			row = one.String()
			return len(list.Devices) == 1 && list.Devices[0].String() == row
		})
		return row
	}
	f.connect(0, registry.Session{Key: registry.Key{Session: "pretends"}, DeviceID: "cam-1"}, echo)
	if got := rows(); got != `cam-1 online false, unknown ms, at ""` {
		t.Errorf("while it is away: %s", got)
	}
	d := f.connect(0, registry.Session{Key: registry.Key{Session: "s1"}, DeviceID: "cam-1", Bound: true}, echo)
	if got := rows(); got != `cam-1 online true, unknown ms, at ""` {
		t.Errorf("before a pong: %s", got)
	}
	d.pulse.Store(&registry.Pulse{At: time.UnixMilli(1_800_000_000_000), RoundTrip: time.Millisecond})
	f.pods[0].HandleGap()
	f.eventually("the refresh", func() bool {
		return rows() == `cam-1 online true, 1 ms, at "2027-01-15T08:00:00.000Z"`
	})
	d.gone()
	if got := rows(); got != `cam-1 online false, unknown ms, at ""` {
		t.Errorf("when it has gone: %s", got)
	}
}

// The list of sessions says which of the tools it names the reader may not call, and why, as the list of tools does.
func TestSessionsSayWhatMayBeCalled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setup{policy: agent.PolicyRules{CallDeny: []string{"danger.*"}}})
	f.connect(0, session("s1"), echo, tools("echo", "danger.wipe")...)
	f.connect(0, session("s2"), echo, tools("echo")...)
	type disabled struct{ Name, Reason string }
	var list struct {
		Sessions []struct {
			Tools    []string
			Disabled *[]disabled `json:"tools_disabled"`
		}
	}
	f.get("/api/sessions").want(http.StatusOK).into(&list)
	var all struct {
		Tools []struct {
			Name, Reason string
			Enabled      bool
		}
	}
	f.get("/api/tools?name=danger.wipe").want(http.StatusOK).into(&all)
	if len(all.Tools) != 1 || all.Tools[0].Enabled || all.Tools[0].Reason == "" {
		t.Fatalf("the list of tools: %+v", all)
	}
	first, second := list.Sessions[0], list.Sessions[1]
	if strings.Join(first.Tools, " ") != "danger.wipe echo" || first.Disabled == nil ||
		fmt.Sprint(*first.Disabled) != fmt.Sprint([]disabled{{"danger.wipe", all.Tools[0].Reason}}) {
		t.Errorf("%+v", first)
	}
	if second.Disabled != nil {
		t.Errorf("nothing is disabled: %+v", second)
	}
}

// However many tools are refused, and however many kinds of them there are, a page stays bounded, and the next one goes
// on where it ended.
func TestPagesOfDisabledToolsAreBounded(t *testing.T) {
	t.Parallel()
	const sessions, each = 120, 100
	f := newFleet(t, setup{policy: agent.PolicyRules{CallDeny: []string{"*"}}})
	for i := range sessions {
		own := make([]registry.ToolSpec, each)
		for n := range own {
			own[n] = tool(fmt.Sprintf("tool_%d_%d", i, n), "x")
		}
		f.connect(0, session(fmt.Sprintf("s%03d", i)), echo, own...)
	}
	seen, cursor := 0, ""
	for pages := 0; pages == 0 || cursor != ""; pages++ {
		var list struct {
			Sessions []struct {
				Disabled []struct{} `json:"tools_disabled"`
			}
			Next string `json:"next_cursor"`
		}
		r := f.get("/api/sessions?limit=1000" + cursor).want(http.StatusOK)
		r.into(&list)
		if len(r.body) > 2<<20 || len(list.Sessions)*each > 10_000+each {
			t.Errorf("a page of %d bytes and %d sessions", len(r.body), len(list.Sessions))
		}
		for _, s := range list.Sessions {
			seen += len(s.Disabled)
		}
		if cursor = list.Next; cursor != "" {
			cursor = "&cursor=" + cursor
		}
	}
	if seen != sessions*each {
		t.Errorf("%d of %d disabled tools", seen, sessions*each)
	}
}
