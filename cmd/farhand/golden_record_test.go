package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// volatile is one kind of value that differs from run to run. A value keeps its name within one record: the second
// <id> is <id-2> wherever it appears again.
type volatile struct {
	pattern  *regexp.Regexp // what is replaced is its first group
	name     string
	numbered bool
}

// volatiles are applied in this order.
var volatiles = []volatile{
	{regexp.MustCompile(`(?m)^< X-Request-Id: (\S+)$`), "request", false}, // before ids: a call names its request
	{regexp.MustCompile(`"resume_token":"([^"]+)"`), "resume-token", true},
	{regexp.MustCompile(`"version":"([^"]+)"`), "version", false},
	{regexp.MustCompile(`\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b`), "id", true},
	{regexp.MustCompile(`\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)`), "time", false},
	{regexp.MustCompile(`"(?:duration|deadline|retry_after)_ms":(\d+)`), "ms", false},
	{regexp.MustCompile(`"(?:id|requestId|progressToken)":(\d{3,})`), "number", true}, // of voice devices
	{regexp.MustCompile(`did not answer within (\d[\d.]*m?s)\.`), "time-left", false}, // of the timeout
	{regexp.MustCompile(`"generation":(\d+)`), "generation", false},
	{regexp.MustCompile(`"created":(\d{10})`), "unix-time", false},
	{regexp.MustCompile(`\b((?:chatcmpl-|call_)[0-9A-Za-z]{8,})`), "completion-id", true},
	{regexp.MustCompile(`(?m)^id: (\S+)$`), "event", false},
	{regexp.MustCompile(`(?m)^< Etag: (\S+)$`), "etag", false},
	{regexp.MustCompile(`"next_cursor":"([^"]+)"`), "cursor", true},
	{regexp.MustCompile(`nonce=\\?"([a-z2-7]{16,})\\?"`), "nonce", true},
	{regexp.MustCompile(`\b(127\.0\.0\.1:\d+)\b`), "address", false},
}

// unpinged keeps a pod from pinging its devices, so that what lists say of pongs does not hang on how long a test runs.
var unpinged = []string{"FARHAND_PING_INTERVAL=1h", "FARHAND_PONG_TIMEOUT=2h"}

// record is a conversation as it went over the wire, with volatile values replaced by names.
type record struct {
	t     *testing.T
	file  string
	text  strings.Builder
	names map[string]string // by value
	count map[string]int    // by kind
}

// newRecord begins a record that is compared with testdata/golden/file when the test ends well.
func newRecord(t *testing.T, file string) *record {
	r := &record{t: t, file: filepath.Join("testdata", "golden", file), names: make(map[string]string),
		count: make(map[string]int)}
	t.Cleanup(r.compare)
	return r
}

// compare holds the record to its golden file, or rewrites that.
func (r *record) compare() {
	if r.t.Failed() {
		return
	}
	if *update {
		if err := os.WriteFile(r.file, []byte(r.text.String()), 0o644); err != nil {
			r.t.Error(err)
		}
		return
	}
	raw, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	got, want := strings.Split(r.text.String(), "\n"), strings.Split(string(raw), "\n")
	for i := range max(len(got), len(want)) {
		if lineAt(got, i) != lineAt(want, i) {
			r.t.Errorf("%s:%d: a contract with clients changed\n got: %s\nwant: %s\nprevious line: %s\n"+
				"If that is meant: go test ./cmd/farhand -run TestGolden -update", r.file, i+1, lineAt(got, i),
				lineAt(want, i), lineAt(got, i-1))
			return
		}
	}
}

// lineAt returns a line of a text, and something no line can be where there is none.
func lineAt(lines []string, i int) string {
	if i < 0 || i >= len(lines) {
		return "(none)\n"
	}
	return lines[i]
}

// name makes a value known by a name before it appears.
func (r *record) name(value, name string) { r.names[value] = "<" + name + ">" }

// stable replaces what differs from run to run.
func (r *record) stable(text string) string {
	for _, v := range volatiles {
		var b strings.Builder
		end := 0
		for _, at := range v.pattern.FindAllStringSubmatchIndex(text, -1) {
			b.WriteString(text[end:at[2]])
			b.WriteString(r.nameOf(v, text[at[2]:at[3]]))
			end = at[3]
		}
		text = b.String() + text[end:]
	}
	for _, value := range slices.Sorted(maps.Keys(r.names)) {
		text = strings.ReplaceAll(text, value, r.names[value])
	}
	return text
}

func (r *record) nameOf(v volatile, value string) string {
	if !v.numbered || strings.HasPrefix(value, "<") {
		return "<" + v.name + ">"
	}
	if r.names[value] == "" {
		r.count[v.name]++
		r.names[value] = fmt.Sprintf("<%s-%d>", v.name, r.count[v.name])
	}
	return r.names[value]
}

func (r *record) section(title string) { fmt.Fprintf(&r.text, "\n# %s\n\n", title) }

func (r *record) printf(format string, args ...any) {
	r.text.WriteString(r.stable(fmt.Sprintf(format, args...)) + "\n")
}

// goldenRequest is an HTTP request. Unless header says otherwise it is authorized, and its body is JSON.
type goldenRequest struct {
	method, path, body string
	header             map[string]string // an empty value leaves a header out
	until              string            // ends the answer behind the event that has this; default: its end
	events             bool              // the answer's comments depend on time, and are left out
}

// goldenAnswer is an answer that is on its way.
type goldenAnswer struct {
	r    *record
	req  goldenRequest
	done chan struct{}
	text string
	body string
	err  error
}

// ask sends a request to a pod and returns at once. It is written down by finish.
func (r *record) ask(url string, req goldenRequest) *goldenAnswer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	a := &goldenAnswer{r: r, req: req, done: make(chan struct{})}
	hr, err := http.NewRequestWithContext(ctx, req.method, url+req.path, strings.NewReader(req.body))
	if err != nil {
		r.t.Fatal(err)
	}
	header := map[string]string{"Authorization": "Bearer " + fleetToken}
	if req.body != "" {
		header["Content-Type"] = "application/json"
	}
	maps.Copy(header, req.header)
	for name, value := range header {
		if value != "" {
			hr.Header.Set(name, value)
		}
	}
	go func() {
		defer close(a.done)
		defer cancel()
		a.err = a.run(hr)
	}()
	return a
}

func (a *goldenAnswer) run(hr *http.Request) error {
	resp, err := http.DefaultClient.Do(hr)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var body strings.Builder
	for buf := make([]byte, 4096); err == nil; {
		var n int
		n, err = resp.Body.Read(buf)
		body.Write(buf[:n])
		if before, after, found := strings.Cut(body.String(), a.req.until); found && a.req.until != "" &&
			strings.Contains(after, "\n\n") {
			after, _, _ = strings.Cut(after, "\n\n")
			body.Reset()
			body.WriteString(before + a.req.until + after + "\n\n")
			err = io.EOF
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	a.body = body.String()
	var head strings.Builder
	fmt.Fprintf(&head, "< %d\n", resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(&head, "< %s: %s\n", name, strings.Join(resp.Header[name], ", "))
		}
	}
	shown := a.body
	if a.req.events {
		shown = regexp.MustCompile(`(?m)^:.*\n\n?`).ReplaceAllString(shown, "")
	}
	a.text = head.String() + "\n" + strings.TrimSuffix(shown, "\n")
	if a.body != "" && !strings.HasSuffix(a.body, "\n") {
		a.text += "\n(no newline at the end)"
	}
	return nil
}

// finish waits for an answer, writes request and answer down, and returns the body.
func (a *goldenAnswer) finish() string {
	a.r.t.Helper()
	<-a.done
	if a.err != nil {
		a.r.t.Fatalf("%s %s: %v", a.req.method, a.req.path, a.err)
	}
	a.r.printf("> %s %s", a.req.method, a.req.path)
	for _, name := range slices.Sorted(maps.Keys(a.req.header)) {
		a.r.printf("> %s: %s", name, a.req.header[name])
	}
	if a.req.body != "" {
		a.r.printf("> %s", shortened(a.req.body))
	}
	a.r.printf("%s\n", a.text)
	return a.body
}

// shortened returns the beginning of a long text.
func shortened(s string) string {
	if len(s) > 1000 {
		return fmt.Sprintf("%s… (%d bytes)", s[:100], len(s))
	}
	return s
}

// do sends a request and writes down what came of it.
func (r *record) do(url, method, path, body string, header ...string) string {
	r.t.Helper()
	req := goldenRequest{method: method, path: path, body: body, header: make(map[string]string)}
	for i := 0; i < len(header); i += 2 {
		req.header[header[i]] = header[i+1]
	}
	return r.ask(url, req).finish()
}

// goldenSocket is a device's socket whose frames are written down.
type goldenSocket struct {
	r    *record
	who  string
	conn *websocket.Conn
	in   chan string
	end  error
}

// dial connects a device. Its reader answers pings all the time.
func (r *record) dial(who, url, query string) *goldenSocket {
	r.t.Helper()
	return r.dialAt(who, url, "/ws/chat"+query)
}

// dialAt is dial for an address, and headers to send.
func (r *record) dialAt(who, url, path string, header ...string) *goldenSocket {
	r.t.Helper()
	h := http.Header{"Authorization": {"Bearer " + fleetToken}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+path, h)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	r.printf("%s connects to %s: %d", who, path, resp.StatusCode)
	s := &goldenSocket{r: r, who: who, conn: conn, in: make(chan string, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.in)
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				s.end = err
				return
			}
			s.in <- string(data)
		}
	}()
	r.t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return s
}

// send writes a frame to the gateway.
func (s *goldenSocket) send(format string, args ...any) {
	s.r.t.Helper()
	frame := fmt.Sprintf(format, args...)
	if err := s.conn.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		s.r.t.Fatalf("%s: %v", s.who, err)
	}
	s.r.printf("%s C→S %s", s.who, shortened(frame))
}

// next returns the next frame of the gateway, which must be of this type if there is one.
func (s *goldenSocket) next(typ string) string {
	s.r.t.Helper()
	select {
	case frame, ok := <-s.in:
		if !ok {
			s.r.t.Fatalf("%s: closed before a %s: %v", s.who, typ, s.end)
		}
		s.r.printf("%s S→C %s", s.who, frame)
		if typ != "" && !strings.HasPrefix(frame, `{"type":"`+typ+`"`) {
			s.r.t.Fatalf("%s: %s instead of %s", s.who, frame, typ)
		}
		return frame
	case <-time.After(waitLimit):
		s.r.t.Fatalf("%s: no %s", s.who, typ)
		return ""
	}
}

// says sends a frame and reads the answer.
func (s *goldenSocket) says(answer, format string, args ...any) string {
	s.r.t.Helper()
	s.send(format, args...)
	return s.next(answer)
}

// called waits for a call and returns its id.
func (s *goldenSocket) called() string {
	s.r.t.Helper()
	return field(s.r.t, s.next("tool_call_request"), "id")
}

// field returns a member of an object that is text.
func field(t *testing.T, object, name string) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	value, _ := members[name].(string)
	if value == "" {
		t.Fatalf("there is no %s in %s", name, object)
	}
	return value
}

// closed waits for the end of the socket.
func (s *goldenSocket) closed() {
	s.r.t.Helper()
	select {
	case frame, ok := <-s.in:
		if ok {
			s.r.t.Fatalf("%s: %s instead of the end", s.who, frame)
		}
	case <-time.After(waitLimit):
		s.r.t.Fatalf("%s: not closed", s.who)
	}
	s.r.printf("%s S→C %v", s.who, s.end)
}

// leave closes the socket as a device does that goes away.
func (s *goldenSocket) leave() {
	s.r.t.Helper()
	s.r.printf("%s closes its socket", s.who)
	s.conn.Close()
	for range s.in { // until the reader has ended
	}
}

// drop breaks the connection.
func (s *goldenSocket) drop() {
	s.r.printf("%s loses its connection", s.who)
	_ = s.conn.NetConn().Close()
	for range s.in {
	}
}
