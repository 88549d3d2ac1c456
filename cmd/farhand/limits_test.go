package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// callEcho calls the tool of an echo device by its session, which the pod with its socket finds without Redis.
func callEcho(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/sessions/phone/tools/echo/call",
		strings.NewReader(`{"args":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// TestLimitOfThreePods: the limit of 60 a minute, driven from three pods at once, lets exactly 60 calls through. While
// Redis is away no call passes, and the answer says why. The log of the fleet has every call, and usage counts them.
func TestLimitOfThreePods(t *testing.T) {
	f := startFaultFleet(t, 3, redisFails, "FARHAND_LIMIT_IDENTITY=60")
	connectDevice(t, f.pods[0].url, "phone", echoTool())
	f.allListed(t, 1, waitLimit)
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	for _, p := range f.pods {
		for range 4 {
			wg.Go(func() {
				for range 15 {
					switch status, body, header := callEcho(t, p.url); status {
					case http.StatusOK:
						passed.Add(1)
					case http.StatusTooManyRequests:
						refused.Add(1)
						if header.Get("Retry-After") == "" || !strings.Contains(body, "FARHAND_LIMIT_IDENTITY") ||
							!strings.Contains(body, `"dispatched":"no"`) {
							t.Errorf("%v %s", header, body)
						}
					default:
						t.Errorf("%d %s", status, body)
					}
				}
			})
		}
	}
	wg.Wait()
	if passed.Load() != 60 || refused.Load() != 120 {
		t.Errorf("%d passed, %d refused", passed.Load(), refused.Load())
	}
	wantAccounts(t, f.pods[2].url, 180, 120)
	wantCommands(t, f.pods[1].url)

	f.proxy.Stop()
	status, body, _ := callEcho(t, f.pods[0].url)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "FARHAND_LIMITS_FAIL=closed") {
		t.Errorf("without Redis: %d %s", status, body)
	}
	if err := f.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	f.heal(t)
}

// wantAccounts waits until usage and the audit log have so many calls, and so many that failed.
func wantAccounts(t *testing.T, url string, calls, failures int64) {
	t.Helper()
	eventually(t, waitLimit, "usage has the calls", func() bool {
		var page struct {
			Usage []struct{ Calls, Failures int64 }
		}
		getJSON(t, url+"/api/usage?by=tool&tool=echo", &page)
		return len(page.Usage) == 1 && page.Usage[0].Calls == calls && page.Usage[0].Failures == failures
	})
	eventually(t, waitLimit, "the audit log has the calls", func() bool {
		var page struct{ Lines []json.RawMessage }
		getJSON(t, url+"/api/audit?action=call&limit=1000", &page)
		return int64(len(page.Lines)) == calls
	})
}

// wantCommands runs farhand usage and farhand audit against a fleet that has served 60 calls and refused 120.
func wantCommands(t *testing.T, url string) {
	t.Helper()
	environ := []string{"FARHAND_URL=" + url, "FARHAND_TOKEN=" + fleetToken}
	for _, c := range []struct {
		args  string
		lines int
		has   []string
	}{
		{"usage --by tool", 2, []string{"TOOL", "echo", "180", "120"}},
		{"usage --by day,user,tool --tool none", 1, []string{"FAILURES"}},
		{"audit --outcome denied --tool echo --limit 5", 6,
			[]string{"OUTCOME", "rate_limited", "FARHAND_LIMIT_IDENTITY"}},
		{"audit --export --outcome allowed --action call", 60, []string{`"args_digest":"`, `"session_id":"phone"`}},
	} {
		code, out, errOut := command(t, environ, strings.Fields(c.args)...)
		if lines := strings.Count(out, "\n"); code != 0 || lines != c.lines {
			t.Errorf("%s: exit %d, %d lines: %s%s", c.args, code, lines, out, errOut)
		}
		for _, text := range c.has {
			if !strings.Contains(out, text) {
				t.Errorf("%s: no %s in %s", c.args, text, out)
			}
		}
	}
	code, _, errOut := command(t, environ, "usage", "--by", "pod")
	if code == 0 || !strings.Contains(errOut, "day, user, tool") {
		t.Errorf("usage by something unknown: exit %d, %s", code, errOut)
	}
}

// TestLimitsOpen: with FARHAND_LIMITS_FAIL=open calls pass while Redis is away, and the log says so.
func TestLimitsOpen(t *testing.T) {
	f := startFaultFleet(t, 1, redisFails, "FARHAND_LIMIT_IDENTITY=60", "FARHAND_LIMITS_FAIL=open",
		"FARHAND_LOG_LEVEL=warn")
	connectDevice(t, f.pods[0].url, "phone", echoTool())
	f.allListed(t, 1, waitLimit)
	if status, body, _ := callEcho(t, f.pods[0].url); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	f.proxy.Stop()
	if status, body, _ := callEcho(t, f.pods[0].url); status != http.StatusOK {
		t.Errorf("without Redis: %d %s", status, body)
	}
	if !strings.Contains(f.pods[0].out.String(), "FARHAND_LIMITS_FAIL=open") {
		t.Error("the log does not say that the call passed")
	}
}
