//go:build linux

package browser_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/registry"
)

// pidsOf returns the processes of a type of the browsers below a folder; the browser itself has none.
func pidsOf(t *testing.T, dir, kind string) (found []int) {
	t.Helper()
	for _, pid := range browser.UsersOf(dir) {
		args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		is := !strings.Contains(string(args), "--type=")
		if kind != "" {
			is = strings.Contains(string(args), "--type="+kind) && !strings.Contains(string(args), "-webui")
		}
		if err == nil && is {
			found = append(found, pid)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no process of type %q", kind)
	}
	return found
}

// A crash, of a page or of the whole browser, is told, and the next page is there again.
func TestCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBench(t, func(c *browser.Config) { c.Dir = dir })
	hold := make(chan struct{})
	defer close(hold)
	reached := make(chan struct{}, 10)
	b.net.page("/refs2", `<button>Other</button>`)
	b.net.mux.HandleFunc("/login", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	b.net.mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-hold:
		}
	})
	kill := func(kind string) {
		running := processesOf(t, browser.UsersOf(dir)...)
		pids := pidsOf(t, dir, kind)
		if kind != "" { // the browser takes all others with it
			running = processesOf(t, pids...)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		running.wait(t)
	}
	b.do(`{"action":"open","url":"http://pages.test/refs2"}`)
	kill("renderer")
	b.fails("crashed", `{"action":"snapshot"}`)
	b.contains(b.navigate("/refs2"), "Tab t1")
	b.contains(b.do(`{"action":"snapshot"}`), "Other")

	// The process that has the network forgets the way to the proxy with everything else.
	// A page that is asked for while Chromium has not noticed is lost with it.
	kill("utility --utility-sub-type=network")
	if res := b.run(`{"action":"navigate","url":"http://pages.test/refs2"}`); !res.Success {
		t.Log(res.Output)
		b.contains(b.navigate("/refs2"), "Tab t1")
	}
	b.fails("requires HTTP authentication", `{"action":"navigate","url":"http://pages.test/login"}`)

	go func() { <-reached; kill("") }()
	b.fails("the browser crashed", `{"action":"navigate","url":"http://pages.test/slow"}`)
	b.contains(b.do(`{"action":"status"}`), "crashed")
	b.fails("crashed", `{"action":"snapshot"}`)
	b.contains(b.do(`{"action":"open","url":"http://pages.test/refs2"}`), "pages.test")
	b.do(`{"action":"stop"}`)
	if left := browser.UsersOf(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if profiles, _ := filepath.Glob(filepath.Join(dir, "browsers", "*", "profile-*")); len(profiles) > 0 {
		t.Errorf("left: %v", profiles)
	}
	if n := b.browsers.Stats(); n.Started != 2 || n.Failed != 0 || n.Lost != 1 {
		t.Errorf("counted %+v", n)
	}
}

// A browser that exceeds its memory limit is stopped and the next call says so; the next browser works again. All
// that it runs leaves a busy processor to the gateway.
func TestGreedyPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBench(t, func(c *browser.Config) { c.Dir, c.Memory = dir, 600<<20 })
	b.net.page("/small", `<title>small</title><script>new Worker(URL.createObjectURL(new Blob(['setInterval(()=>{},9)'])))
</script>`)
	b.net.page("/greedy", `<title>greedy</title><script>const all=[];setInterval(()=>{
if(all.length<45)all.push(new Uint8Array(16<<20).fill(all.length+1))},10)</script>`)
	b.contains(b.do(`{"action":"open","url":"http://pages.test/small"}`), "small")
	running := processesOf(t, pidsOf(t, dir, "")...)
	b.run(`{"action":"navigate","url":"http://pages.test/greedy"}`) // it may end meanwhile
	running.wait(t)
	b.contains(b.do(`{"action":"status"}`), "exceeded its memory limit")
	b.contains(b.do(`{"action":"open","url":"http://pages.test/small"}`), "small")
}

// Each session has a browser of its own, with its own cookies; there are not too many; the end of a session, or of all,
// is the end of its browser.
func TestSessions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBench(t, func(c *browser.Config) { c.Dir, c.MaxBrowsers, c.Evict = dir, 4, time.Hour })
	b.net.mux.HandleFunc("/cookie", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte("<title>known: " + r.Header.Get("Cookie") + "</title>"))
	})
	b.net.page("/login", `<script>document.cookie='who=anna'</script>`)
	b.navigate("/login")
	b.contains(b.navigate("/cookie"), "known: who=anna")
	other := b.of("tablet")
	if res := b.runAs(other, `{"action":"open","url":"http://pages.test/cookie"}`); !res.Success ||
		strings.Contains(res.Output, "anna") {
		t.Errorf("%+v", res)
	}
	if res := b.runAs(b.of("third"), `{"action":"start"}`); res.Success || !strings.Contains(res.Output, "are in use") {
		t.Errorf("%+v", res)
	}
	running := processesOf(t, browser.UsersOf(dir)...)
	phone := func(id agent.SessionID) bool {
		return id == agent.SessionID{Tenant: "default", Conversation: "phone"}
	}
	b.browsers.Release(phone)
	b.browsers.Release(phone)
	if left := processesOf(t, browser.UsersOf(dir)...); len(left) == 0 || len(left) >= len(running) {
		t.Errorf("%d of %d processes", len(left), len(running))
	}
	b.contains(b.do(`{"action":"status"}`), "No browser is running")
	if err := b.browsers.Close(t.Context()); err != nil {
		t.Error(err)
	}
	running.wait(t)
	b.fails("session has ended", `{"action":"start"}`)
	if found := folders(dir); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
}

// A tenant whose browsers are in use leaves one for another tenant.
func TestBrowsersAreShared(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *browser.Config) { c.MaxBrowsers, c.Evict = 3, time.Hour })
	started := 0
	for user := range 3 {
		id := auth.Identity{Tenant: "hostile", User: strconv.Itoa(user)}
		res := b.runAs(b.ofUser(id, id.User), `{"action":"start"}`)
		if res.Success {
			started++
		} else if !strings.Contains(res.Output, "are in use") {
			t.Error(res.Output)
		}
	}
	if started != 1 {
		t.Errorf("a tenant has %d of 3 browsers", started)
	}
	if res := b.runAs(b.ofUser(auth.Identity{Tenant: "other"}, "phone"), `{"action":"start"}`); !res.Success {
		t.Error(res.Output)
	}
}

// A browser that nobody uses makes room for another, and ends by itself after a while.
func TestIdle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBench(t, func(c *browser.Config) { c.Dir, c.MaxBrowsers, c.Evict = dir, 1, time.Nanosecond })
	b.do(`{"action":"start"}`)
	first := processesOf(t, browser.UsersOf(dir)...)
	if len(first) < 3 {
		t.Errorf("%d processes", len(first))
	}
	other := b.of("tablet")
	if res := b.runAs(other, `{"action":"start"}`); !res.Success {
		t.Error(res.Output)
	}
	first.wait(t)
	b.contains(b.do(`{"action":"status"}`), "No browser is running")

	dir = t.TempDir()
	short := newBench(t, func(c *browser.Config) { c.Dir, c.Idle = dir, time.Millisecond })
	short.do(`{"action":"start"}`)
	processesOf(t, browser.UsersOf(dir)...).wait(t) // there may be none any more
	short.contains(short.do(`{"action":"status"}`), "No browser is running")
}

func TestSessionOf(t *testing.T) {
	anna := auth.Identity{Tenant: "default", User: "anna"}
	phone := registry.Key{Tenant: "default", Session: "phone"}
	seen := make(map[browser.Session]int)
	for i, sc := range []agent.SessionContext{
		{Caller: anna, Key: phone}, {Caller: anna, Key: phone, Kind: agent.ContextGroup}, {Caller: anna},
		{Caller: anna, Key: registry.Key{Tenant: "default", Session: "tablet"}},
		{Caller: auth.Identity{Tenant: "other", User: "anna"}, Key: phone},
		{Caller: auth.Identity{Tenant: "other", User: "anna"}}, {Caller: auth.Identity{Tenant: "default", User: "bob"}},
	} {
		if other, ok := seen[browser.SessionOf(sc)]; ok {
			t.Errorf("%d and %d share a browser", i, other)
		}
		seen[browser.SessionOf(sc)] = i
	}
	same := agent.SessionContext{Caller: anna, Key: phone, Kind: agent.ContextMain}
	if _, ok := seen[browser.SessionOf(same)]; !ok {
		t.Error("one session has two browsers")
	}
}
