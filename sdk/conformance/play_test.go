package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/sdk/internal/driver"
)

// play is one case with one SDK.
type play struct {
	t       *testing.T
	gateway *gateway
	driver  *driver.Device // a program with an SDK; README.md has its commands and reports
	link    *link          // the latest
	drained time.Time      // when server_draining was sent
	opening opening        // the last one

	publicKey, nonce string // of a pairing
}

func (p *play) run(c testCase) {
	defer p.command("end", nil)
	p.start(c.Device)
	for i, s := range c.Steps {
		do, known := steps[s.do]
		if !known {
			p.t.Fatalf("step %d: %s is unknown", i+1, s.do)
		}
		if err := do(p, &s); err != nil {
			p.t.Fatalf("step %d, %s %s: %v", i+1, s.do, s.with, err)
		}
	}
}

func (p *play) start(options map[string]any) {
	p.command("start", map[string]any{"url": p.gateway.server.URL, "options": options})
}

func (p *play) command(do string, with map[string]any) {
	command := map[string]any{"do": do}
	maps.Copy(command, with)
	p.driver.Command(p.t, command)
}

// steps are what a case can do.
var steps = map[string]func(*play, *step) error{
	"open": (*play).open, "accept": (*play).accept, "refuse": (*play).refuse, "post": (*play).post, "put": (*play).put,
	"send": (*play).send, "raw": (*play).raw, "call": (*play).call, "expect": (*play).expect,
	"unordered": (*play).unordered, "answer": (*play).answer, "many": (*play).many,
	"close": (*play).close, "drop": (*play).drop, "closed": (*play).closed,
	"device": (*play).device, "await": (*play).await, "restart": (*play).restart,
}

// opening is a connection that is accepted, and answered as a gateway does.
type opening struct {
	Query    map[string]string `json:"query"`
	Token    *string           `json:"token"`
	Signed   string            `json:"signed"` // device id of a signature
	Connect  map[string]any    `json:"connect"`
	Start    map[string]any    `json:"start"` // members of session_start
	Register []any             `json:"register"`
	Late     bool              `json:"at_least_retry_after"` // comes when server_draining allows it
	RetryMS  int               `json:"retry_after_ms"`
}

// open accepts a connection, expects connect and register_tools, and answers them.
func (p *play) open(s *step) error {
	if err := p.accept(s); err != nil {
		return err
	}
	connect := p.opening.Connect
	if connect == nil {
		connect = map[string]any{}
	}
	connect["type"] = "connect"
	if err := p.match(connect); err != nil {
		return err
	}
	start := map[string]any{
		"type": "session_start", "v": 1, "session_id": "given", "resumed": false, "message_count": 0,
	}
	maps.Copy(start, p.opening.Start)
	for name, value := range start {
		if value == nil {
			delete(start, name)
		}
	}
	p.write(start)
	register, err := p.next()
	if err != nil {
		return err
	}
	pattern := map[string]any{"type": "register_tools"}
	if p.opening.Register != nil {
		pattern["tools"] = p.opening.Register
	}
	if d := differ("frame", pattern, register, true); d != "" {
		return fmt.Errorf("%s in %s", d, short(register))
	}
	n := len(register["tools"].([]any))
	p.write(map[string]any{"type": "tools_registered", "count": n, "registered": n})
	return nil
}

// accept takes a connection.
func (p *play) accept(s *step) error {
	p.opening = opening{}
	if err := s.bind(&p.opening); err != nil {
		return err
	}
	o := p.opening
	ask := testkit.Receive(p.t, "a connection", p.gateway.dials)
	if wait := time.Since(p.drained); o.Late && wait < time.Duration(o.RetryMS)*time.Millisecond {
		return fmt.Errorf("the device is back after %v", wait)
	}
	if err := sameQuery(o.Query, ask.r.URL.Query()); err != nil {
		return err
	}
	token, signature := proof(ask.r)
	if o.Token != nil && token != *o.Token {
		return fmt.Errorf("the token is %q", token)
	}
	if o.Signed != "" {
		if err := verify(signature, p.publicKey, p.nonce, o.Signed); err != nil {
			return err
		}
	}
	p.link = p.gateway.upgrade(ask)
	return nil
}

// refuse answers a connection with an HTTP error.
func (p *play) refuse(s *step) error {
	with := &refusal{}
	if err := s.bind(with); err != nil {
		return err
	}
	ask := testkit.Receive(p.t, "a connection", p.gateway.dials)
	p.gateway.mu.Lock()
	p.gateway.refusal = with
	p.gateway.mu.Unlock()
	with.write(ask.w)
	ask.done()
	return nil
}

// post answers a request of a pairing.
func (p *play) post(s *step) error {
	var with struct {
		Path   string         `json:"path"`
		Token  string         `json:"token"`
		Body   map[string]any `json:"body"`
		Status int            `json:"status"`
		Reply  map[string]any `json:"reply"`
	}
	if err := s.bind(&with); err != nil {
		return err
	}
	ask := testkit.Receive(p.t, "a request", p.gateway.posts)
	defer ask.done()
	var body map[string]any
	if err := json.Unmarshal(ask.body, &body); err != nil {
		return err
	}
	if key, ok := body["public_key"].(string); ok {
		p.publicKey = key
		p.gateway.mu.Lock()
		p.gateway.paired = true
		p.gateway.mu.Unlock()
	}
	if nonce, ok := with.Reply["nonce"].(string); ok {
		p.nonce = nonce
	}
	token, _ := proof(ask.r)
	if ask.r.URL.Path != with.Path || token != with.Token {
		return fmt.Errorf("the request is for %s, with the token %q", ask.r.URL.Path, token)
	}
	if d := differ("body", with.Body, body, true); with.Body != nil && d != "" {
		return fmt.Errorf("%s in %s", d, ask.body)
	}
	ask.w.Header().Set("Content-Type", "application/json")
	ask.w.WriteHeader(with.Status)
	return json.NewEncoder(ask.w).Encode(with.Reply)
}

// put takes an upload.
func (p *play) put(s *step) error {
	var with struct {
		Path     string `json:"path"`
		MIMEType string `json:"mime_type"`
		Bytes    int    `json:"bytes"`
		Status   int    `json:"status"`
	}
	if err := s.bind(&with); err != nil {
		return err
	}
	ask := testkit.Receive(p.t, "an upload", p.gateway.puts)
	defer ask.done()
	length := ask.r.ContentLength
	mimeType := ask.r.Header.Get("Content-Type")
	if ask.r.URL.Path != with.Path || mimeType != with.MIMEType || len(ask.body) != with.Bytes ||
		length != int64(with.Bytes) {
		return fmt.Errorf("%s of the type %q has %d bytes and the length %d", ask.r.URL.Path, mimeType, len(ask.body),
			length)
	}
	ask.w.WriteHeader(with.Status)
	return nil
}

// restart ends the device as a crash does, and starts it again with the same store.
func (p *play) restart(s *step) error {
	var options map[string]any
	if err := s.bind(&options); err != nil {
		return err
	}
	p.driver.Restart(p.t) // as a crash, or a reload of the page
	p.start(options)
	return nil
}

// device gives the device's program a command.
func (p *play) device(s *step) error {
	var command map[string]any
	if err := s.bind(&command); err != nil {
		return err
	}
	p.driver.Command(p.t, command)
	return nil
}

// await waits for a report of the device, and skips all others.
func (p *play) await(s *step) error {
	var pattern map[string]any
	if err := s.bind(&pattern); err != nil {
		return err
	}
	deadline := time.After(testkit.Limit)
	var last map[string]any
	for {
		select {
		case report, open := <-p.driver.Reports():
			if !open {
				return fmt.Errorf("the device's program ended; its last report was %s", short(last))
			}
			if differ("report", pattern, report, true) == "" {
				return nil
			}
			last = report
		case <-deadline:
			return fmt.Errorf("no such report; the last was %s", short(last))
		}
	}
}
