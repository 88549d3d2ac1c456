package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// told is what a person has the model do: to call a tool.
type told struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// does is a model that calls the tool that the last message of its user names, and says what came of it.
func does(r scripted.Request) scripted.Step {
	last := r.Messages[len(r.Messages)-1]
	var t told
	if last.Role == provider.RoleUser && json.Unmarshal([]byte(last.Content), &t) == nil {
		return scripted.Reply(scripted.Calls(scripted.Call{Name: t.Tool, Args: string(t.Args)}))
	}
	return scripted.Reply(scripted.Text("done"))
}

// hands is a fleet with all tools that keep something, each pod with a disk of its own, and pages for their browsers.
type hands struct {
	*testing.T
	pods  []*pod
	disks []string
	pages *httptest.Server
	next  int // the pod that the balancer takes next
}

func startHands(t *testing.T, n int, settings ...string) *hands {
	t.Helper()
	h := &hands{T: t, pages: httptest.NewServer(http.HandlerFunc(servePage))}
	t.Cleanup(h.pages.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(h.pages.URL, "http://"))
	model := scripted.OpenAIFunc(t, does)
	redis := redistest.Start(t).URL()
	for range n {
		dir, err := os.MkdirTemp("/var/tmp", "farhand-hands") // programs of another user pass through it
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		h.disks = append(h.disks, dir)
		h.pods = append(h.pods, startPod(t, append(append(agentSettings(providerOpenAI, model),
			"FARHAND_REDIS_URL="+redis, redisMayStall, "FARHAND_BUILTIN_TOOLS=time,read,write,edit,exec,bash,browser",
			"FARHAND_WORKSPACE_DIR="+dir+"/w", "XDG_CACHE_HOME="+dir+"/cache", "FARHAND_BROWSER_NO_SANDBOX=true",
			"FARHAND_PRIVATE_URLS=true", "FARHAND_BROWSER_PORTS="+port, "FARHAND_POD_LEASE=3s",
			"FARHAND_SESSION_TTL=3s", "FARHAND_SANDBOX=landlock"), settings...)...))
	}
	return h
}

// servePage shows which page it is, and which cookie came along, and leaves a cookie.
func servePage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, "<title>page %s</title><p>page %s, cookie [%s]</p><script>document.cookie='who=anna'</script>",
		r.URL.Path, r.URL.Path, r.Header.Get("Cookie"))
}

// does has the model call a tool in a conversation, on the pod that the balancer takes, and returns what it read.
func (h *hands) does(session, in, tool, args string) string {
	h.Helper()
	h.next++
	return h.doesOn(h.next%len(h.pods), session, in, tool, args)
}

func (h *hands) doesOn(at int, session, in, tool, args string) string {
	h.Helper()
	said, err := json.Marshal(told{tool, json.RawMessage(args)})
	if err != nil {
		h.Fatal(err)
	}
	body, err := json.Marshal(map[string]string{"content": string(said), "context": in})
	if err != nil {
		h.Fatal(err)
	}
	status, raw := request(h, http.MethodPost, h.pods[at].url+"/api/sessions/"+session+"/messages", string(body))
	var reply struct {
		Calls []struct{ Name, Status, Output string } `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil || status != http.StatusOK || len(reply.Calls) != 1 {
		h.Fatalf("%s: %d %s", said, status, raw)
	}
	return reply.Calls[0].Output
}

// calls calls a tool directly, on the pod that the balancer takes.
func (h *hands) calls(tool, args string) string {
	h.Helper()
	h.next++
	a := callTool(h, h.pods[h.next%len(h.pods)].url, "/api/tools/"+tool+"/call",
		`{"timeout_ms":60000,"args":`+args+`}`)
	return a.Output + a.Detail
}

func (h *hands) page(path string) string {
	return `{"action":"open","url":"` + h.pages.URL + path + `"}`
}

// has fails the test unless text has all parts.
func (h *hands) has(text string, parts ...string) {
	h.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			h.Errorf("no %q in %s", part, text)
		}
	}
}

// hasNo fails the test if text has one of the parts.
func (h *hands) hasNo(text string, parts ...string) {
	h.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			h.Errorf("%q in %s", part, text)
		}
	}
}

// browsers returns how many profiles of browsers there are on the disk of a pod.
func (h *hands) browsers(at int) int {
	found, _ := filepath.Glob(filepath.Join(h.disks[at], "cache", "farhand", "browsers", "*", "profile-*"))
	return len(found)
}

// workspaces returns how many folders of sessions there are on the disk of a pod.
func (h *hands) workspaces(at int) int {
	found, _ := filepath.Glob(filepath.Join(h.disks[at], "w", "sessions", "*"))
	return len(found)
}

// TestAnyPodForEveryTool: behind a balancer without stickiness, tools that keep something behave as on one pod, in
// conversations, in the sandbox and outside of conversations.
func TestAnyPodForEveryTool(t *testing.T) {
	t.Parallel()
	h := startHands(t, 2)
	connectDevice(t, h.pods[0].url, "phone", echoTool())
	for name, do := range map[string]func(tool, args string) string{
		"conversation": func(tool, args string) string { return h.does("phone", "main", tool, args) },
		"sandbox":      func(tool, args string) string { return h.does("phone", "group sandboxed", tool, args) },
		"direct":       h.calls,
	} {
		for range 2 { // the balancer begins with either pod
			do("browser", h.page("/"+name+"/one"))
			h.has(do("browser", `{"action":"snapshot"}`), name+"/one", "cookie []")
			h.has(do("browser", h.page("/"+name+"/two")), name+"/two")
			h.has(do("browser", `{"action":"status"}`), name+"/one", name+"/two")
			h.has(do("browser", `{"action":"snapshot"}`), "cookie [who=anna]")
			do("write", `{"path":"notes.txt","content":"of `+name+`"}`)
			h.has(do("read", `{"path":"notes.txt"}`), "of "+name)
			h.has(do("exec", `{"command":"cat notes.txt"}`), "of "+name)
			h.has(do("edit", `{"path":"notes.txt","edits":[{"old":"of","new":"all of"}]}`), "all of")
			h.has(do("bash", `{"command":"cat notes.txt"}`), "all of "+name)
			h.has(do("browser", `{"action":"stop"}`), "stopped")
			h.next++
		}
	}
	if n, m := h.browsers(0), h.browsers(1); n+m != 0 {
		t.Errorf("%d and %d browsers are left", n, m)
	}
}

// recordTool uploads a file with its result.
func recordTool() client.Option {
	return client.WithTool(client.Tool{Name: "record"}, func(ctx context.Context, c client.Call) (any, error) {
		p := client.Part{Type: client.PartFile, MIMEType: "text/plain"}
		p, err := c.Upload(ctx, p, 8, strings.NewReader("recorded"))
		return client.Result{Output: "done", Parts: []client.Part{p}}, err
	})
}

// TestTheOwnerOfAPlaceIsKilled: what it kept is lost; the tools say so once, and begin anew on another pod. A file that
// it took from a device is on the volume that the pods share.
func TestTheOwnerOfAPlaceIsKilled(t *testing.T) {
	t.Parallel()
	h := startHands(t, 3, "FARHAND_BLOB_URL=file://"+t.TempDir())
	for _, session := range []string{"phone", "tablet", "watch"} {
		connectDevice(t, h.pods[1].url, session, echoTool())
	}
	connectDevice(t, h.pods[0].url, "camera", recordTool())
	link := h.records(1, "camera")
	sandboxed := func(at int, tool, args string) string { return h.doesOn(at, "watch", "group sandboxed", tool, args) }
	sandboxed(0, "write", `{"path":"notes.txt","content":"kept"}`)
	h.has(sandboxed(1, "exec", `{"command":"cat notes.txt"}`), "kept")
	h.doesOn(0, "phone", "main", "browser", h.page("/one"))
	h.doesOn(0, "phone", "main", "write", `{"path":"notes.txt","content":"kept"}`)
	h.has(h.doesOn(1, "phone", "main", "read", `{"path":"notes.txt"}`), "kept")
	h.doesOn(0, "tablet", "main", "write", `{"path":"notes.txt","content":"kept"}`)
	h.pods[0].signal(syscall.SIGKILL)
	h.pods[0].exit(t)
	h.has(h.doesOn(1, "phone", "main", "browser", `{"action":"snapshot"}`), "is gone", "No browser is running")
	h.hasNo(h.doesOn(2, "phone", "main", "browser", h.page("/two")), "is gone")
	h.has(h.doesOn(1, "phone", "main", "browser", `{"action":"status"}`), "/two")
	h.has(h.doesOn(2, "phone", "main", "read", `{"path":"notes.txt"}`), "is gone", "no file")
	h.doesOn(2, "phone", "main", "write", `{"path":"notes.txt","content":"new"}`)
	h.has(h.doesOn(1, "phone", "main", "exec", `{"command":"cat notes.txt"}`), "new")
	h.has(h.doesOn(2, "tablet", "main", "exec", `{"command":"cat notes.txt"}`), "is gone", "No such file")

	h.has(sandboxed(2, "exec", `{"command":"cat notes.txt"}`), "is gone", "No such file")
	sandboxed(1, "write", `{"path":"notes.txt","content":"new"}`)
	again := sandboxed(2, "exec", `{"command":"cat notes.txt"}`)
	h.has(again, "new")
	h.hasNo(again, "is gone")
	for _, at := range []int{1, 2} {
		if status, file := request(t, http.MethodGet, h.pods[at].url+link, ""); string(file) != "recorded" {
			t.Errorf("the file on pod %d: %d %s", at, status, file)
		}
	}
}

// records calls record of a device on a pod, and returns the link of its file.
func (h *hands) records(at int, session string) string {
	h.Helper()
	status, raw := request(h, http.MethodPost, h.pods[at].url+"/api/sessions/"+session+"/tools/record/call", "{}")
	var recorded struct{ Parts []struct{ URL string } }
	if err := json.Unmarshal(raw, &recorded); err != nil || len(recorded.Parts) != 1 {
		h.Fatalf("record: %d %s", status, raw)
	}
	return recorded.Parts[0].URL
}

// TestAnOwnerThatStopsHandsItsPlacesOver: the next pod begins at once, and says what is lost. What is on a volume that
// the pods share is not.
func TestAnOwnerThatStopsHandsItsPlacesOver(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/var/tmp", "farhand-volume")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	h := startHands(t, 2, "FARHAND_WORKSPACE_DIR="+dir+"/w", "FARHAND_POD_LEASE=1h")
	connectDevice(t, h.pods[1].url, "phone", echoTool())
	h.doesOn(0, "phone", "main", "browser", h.page("/one"))
	h.doesOn(0, "phone", "main", "write", `{"path":"notes.txt","content":"kept"}`)
	h.pods[0].signal(syscall.SIGTERM)
	if code := h.pods[0].exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	h.has(h.doesOn(1, "phone", "main", "browser", `{"action":"status"}`), "is gone", "No browser is running")
	h.hasNo(h.doesOn(1, "phone", "main", "browser", `{"action":"status"}`), "is gone")
	read := h.doesOn(1, "phone", "main", "read", `{"path":"notes.txt"}`)
	h.has(read, "kept")
	h.hasNo(read, "is gone")
}

// TestAnErasedConversationKeepsNothing: whatever pod hears that a conversation is deleted, nothing of it is left for
// the next one under its id.
func TestAnErasedConversationKeepsNothing(t *testing.T) {
	t.Parallel()
	h := startHands(t, 2)
	disconnect := func() {}
	begin := func() { // the device of a session that was deleted does not come back
		disconnect()
		disconnect = connectDevice(t, h.pods[0].url, "phone", echoTool())
	}
	fill := func() {
		begin()
		for _, in := range []string{"main", "group sandboxed"} {
			h.doesOn(1, "phone", in, "browser", h.page("/secret"))
			h.doesOn(1, "phone", in, "write", `{"path":"secret.txt","content":"of before"}`)
		}
		if h.browsers(1) != 2 || h.workspaces(1) != 2 {
			t.Fatalf("%d browsers and %d workspaces", h.browsers(1), h.workspaces(1))
		}
	}
	erase := func() {
		status, raw := request(t, http.MethodDelete, h.pods[0].url+"/api/sessions/phone", "")
		if status != http.StatusNoContent {
			t.Fatalf("delete: %d %s", status, raw)
		}
	}
	clean := func(at int) {
		begin()
		for _, in := range []string{"main", "group sandboxed"} {
			h.has(h.doesOn(at, "phone", in, "browser", `{"action":"status"}`), "No browser is running")
			h.has(h.doesOn(at, "phone", in, "browser", h.page("/next")), "/next")
			h.has(h.doesOn(at, "phone", in, "browser", `{"action":"snapshot"}`), "cookie []")
			h.hasNo(h.doesOn(at, "phone", in, "browser", `{"action":"status"}`), "secret")
			read := h.doesOn(at, "phone", in, "exec", `{"command":"cat secret.txt"}`)
			h.has(read, "No such file")
			h.hasNo(read, "is gone")
		}
	}
	gone := func(pod int) {
		eventually(t, waitLimit, "what was kept is removed", func() bool {
			return h.browsers(pod) == 0 && h.workspaces(pod) == 0
		})
	}
	fill()
	erase()
	gone(1)
	clean(1) // on the very pod that had it
	erase()
	gone(1)

	fill() // a pod that is away does not hear of it
	h.pods[1].signal(syscall.SIGSTOP)
	erase()
	clean(0)
	h.pods[1].signal(syscall.SIGCONT)
	gone(1)
	for _, in := range []string{"main", "group sandboxed"} { // the conversation of now is on the other pod
		status := h.doesOn(1, "phone", in, "browser", `{"action":"status"}`)
		h.has(status, "/next")
		h.hasNo(status, "secret")
	}
	if h.browsers(0) != 2 || h.browsers(1) != 0 {
		t.Errorf("%d and %d browsers", h.browsers(0), h.browsers(1))
	}
}
