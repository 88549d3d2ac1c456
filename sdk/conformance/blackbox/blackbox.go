// Package blackbox checks a running fleet from outside, for tests: it knows a URL and an admin's token, uses the
// fleet's HTTP API and its WebSocket as documented, and compares each answer with what the documentation promises and
// with the fleet's own /openapi.json. It connects one device, and makes and revokes one API key.
//
// Imports: only tests import it. Of the packages of this module it imports the Go SDK.
package blackbox

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// Fleet is what is checked.
type Fleet struct {
	URL   string      // such as https://farhand.example.com; any pod or a balancer
	Token string      // of an admin of the default tenant
	TLS   *tls.Config // trusted authorities; nil: the system's authorities
}

// limit bounds one request, and every other wait.
const limit = 30 * time.Second

// check is one run.
type check struct {
	t    *testing.T
	url  string
	http *http.Client
	doc  *document
	vars map[string]string // by name, without the $
	stop func()            // the device
}

// Check makes the requests of the table, and fails the test for each answer that is not as documented. The fleet keeps
// the records of the calls until they expire, and remembers the device.
func Check(t *testing.T, f Fleet) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: f.TLS.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	c := &check{
		t: t, url: strings.TrimSuffix(f.URL, "/"), http: &http.Client{Transport: transport, Timeout: limit},
		vars: map[string]string{"session": "conformance-" + rand.Text(), "admin": f.Token, "anonymous": ""},
	}
	c.doc = c.readDocument()
	c.connect(f)
	defer func() { c.stop() }()
	for _, e := range exchanges {
		c.do(e)
	}
	c.followFeed()
	c.stop()
	for _, e := range asleep {
		c.do(e)
	}
	c.connect(f)
	for _, e := range awake {
		c.do(e)
	}
}

// connect connects the device with its three tools.
func (c *check) connect(f Fleet) {
	c.t.Helper()
	text := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
	echo := func(_ context.Context, call client.Call) (any, error) {
		var args struct{ Text string }
		err := json.Unmarshal(call.Args, &args)
		return args.Text, err
	}
	options := []client.Option{
		client.WithToken(f.Token), client.WithSession(c.vars["session"]),
		client.WithDevice(c.vars["session"], "Conformance", "test"),
		client.WithTool(client.Tool{Name: "conformance_echo", Description: "Repeats a text.", Parameters: text}, echo),
		client.WithTool(client.Tool{
			Name: "conformance_ask", Description: "Repeats a text if a person agrees.", Parameters: text,
			SecurityLevel: "user_confirm",
		}, echo),
		client.WithTool(client.Tool{Name: "conformance_wait", Description: "Waits until it is cancelled."},
			func(ctx context.Context, _ client.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
	}
	if f.TLS != nil {
		options = append(options, client.WithTLS(f.TLS))
	}
	device, err := client.New(c.url, options...)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := device.Run(ctx); ctx.Err() == nil {
			c.t.Errorf("the device gave up: %v", err)
		}
	}()
	c.stop = func() { cancel(); <-ended }
	select {
	case <-device.Ready():
	case <-time.After(limit):
		c.stop()
		c.t.Fatal("the device is not registered")
	}
}

// do makes one request, checks its answer, and keeps what later requests name.
func (c *check) do(e exchange) {
	c.t.Helper()
	var a answer
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		a = c.ask(e)
		if a.status == e.status || !e.soon || time.Now().After(end) {
			break
		}
	}
	if problem := a.compare(e.status, c.fill(e.want)); problem != "" {
		c.t.Errorf("%s: %s %s: %s\n%d %.2000s", e.name, e.method, c.fill(e.path), problem, a.status, a.body)
	}
	if e.replayed != (a.header.Get("Idempotent-Replayed") == "true") {
		c.t.Errorf("%s: Idempotent-Replayed is %q", e.name, a.header.Get("Idempotent-Replayed"))
	}
	if problem := c.doc.check(e.method, c.fill(e.path), a); problem != "" {
		c.t.Errorf("%s: %s %s is not as /openapi.json says: %s\n%d %.2000s", e.name, e.method, c.fill(e.path), problem,
			a.status, a.body)
	}
	for name, member := range e.keep {
		if c.vars[name] = a.text(member); c.vars[name] == "" {
			c.t.Fatalf("%s: the answer has no %s: %d %.2000s", e.name, member, a.status, a.body)
		}
	}
}

// ask makes the request of an exchange.
func (c *check) ask(e exchange) answer {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, e.method, c.url+c.fill(e.path), strings.NewReader(c.fill(e.body)))
	if err != nil {
		c.t.Fatal(err)
	}
	if token := c.vars[e.by()]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if e.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", cmp.Or(e.accept, "application/json"))
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Fatalf("%s: %v", e.name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s: %v", e.name, err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

// fill replaces the names of variables.
func (c *check) fill(text string) string {
	return regexp.MustCompile(`\$[a-z]+`).ReplaceAllStringFunc(text, func(name string) string {
		value, isKnown := c.vars[name[1:]]
		if !isKnown {
			c.t.Fatalf("%s has no value, in %s", name, text)
		}
		return value
	})
}

// followFeed reads the end of a call from a stream that was open before. A balancer that buffers streams fails.
func (c *check) followFeed() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/api/events?type=call.finished", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.vars["admin"])
	stream, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK || stream.Header.Get("Content-Type") != "text/event-stream" {
		c.t.Fatalf("the feed: %s, %s", stream.Status, stream.Header.Get("Content-Type"))
	}
	c.do(exchange{
		name: "a call beside the feed", method: "POST", path: "/api/sessions/$session/tools/conformance_echo/call",
		body: `{"args":{"text":"fed"}}`, status: 200, want: `{"output":"fed"}`,
		keep: map[string]string{"fed": "call_id"},
	})
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if isData && strings.Contains(data, c.vars["fed"]) {
			if problem := c.doc.validate("#/components/schemas/Activity", []byte(data)); problem != "" {
				c.t.Errorf("an event of the feed: %s\n%s", problem, data)
			}
			return
		}
	}
	c.t.Error("the feed ended without the end of the call")
}

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// text returns a member at a path of names, separated by dots, or nothing.
func (a answer) text(path string) string {
	var at any
	if json.Unmarshal(a.body, &at) != nil {
		return ""
	}
	for name := range strings.SplitSeq(path, ".") {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	text, _ := at.(string)
	return text
}

// compare says how the answer differs from a status and from JSON that it must contain; a stream must contain text.
func (a answer) compare(status int, want string) (problem string) {
	if a.status != status {
		return fmt.Sprintf("want status %d", status)
	}
	if want == "" {
		return ""
	}
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		if !strings.Contains(string(a.body), want) {
			return "want " + want
		}
		return ""
	}
	var got, wanted any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		return fmt.Sprintf("the wanted answer is no JSON: %v", err)
	}
	if err := json.Unmarshal(a.body, &got); err != nil {
		return fmt.Sprintf("the answer is no JSON: %v", err)
	}
	if !contains(got, wanted) {
		return "want " + want
	}
	return ""
}

// contains reports whether JSON has all that is wanted: each member of an object, each item of a list in any place. "…"
// stands for any value that is not empty.
func contains(got, wanted any) bool {
	switch w := wanted.(type) {
	case map[string]any:
		members, _ := got.(map[string]any)
		for name, value := range w {
			if !contains(members[name], value) {
				return false
			}
		}
		return members != nil
	case []any:
		items, isList := got.([]any)
		for _, item := range w {
			found := false
			for _, candidate := range items {
				found = found || contains(candidate, item)
			}
			if !found {
				return false
			}
		}
		return isList
	}
	if wanted == "…" {
		return got != nil && got != ""
	}
	return got == wanted
}
