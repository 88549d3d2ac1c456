package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

const schemaPeak = 400 // MiB over idle

// definition is one tool as a device registers it.
type definition struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
}

// registerRaw registers tools on a socket and returns which were rejected, with the reasons.
func registerRaw(t *testing.T, conn *websocket.Conn, tools []definition) map[string]string {
	t.Helper()
	if err := conn.WriteJSON(map[string]any{"type": "register_tools", "tools": tools}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(3 * waitLimit))
	for {
		var f struct {
			Type     string
			Rejected []struct{ Name, Reason string }
		}
		if err := conn.ReadJSON(&f); err != nil {
			t.Fatalf("no answer to register_tools: %v", err)
		}
		if f.Type == "tools_registered" {
			rejected := make(map[string]string)
			for _, r := range f.Rejected {
				rejected[r.Name] = r.Reason
			}
			return rejected
		}
	}
}

// repeated joins n texts with commas.
func repeated(n int, f func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f(i))
	}
	return b.String()
}

func constantly(s string) func(int) string { return func(int) string { return s } }

// One frame of small patterns that are large when compiled.
func TestAttackPatterns(t *testing.T) {
	a := startAttacked(t, 1)
	tools := []definition{{"honest_tool", json.RawMessage(`{"properties":{"a":{"pattern":"^[a-z]{1,20}$"}}}`)}}
	for i := range 15 {
		tools = append(tools, definition{fmt.Sprintf("heavy%d", i), json.RawMessage(`{"properties":{` +
			repeated(32, func(j int) string {
				return fmt.Sprintf(`"p%d":{"pattern":"%c%c%s"}`, j, 'a'+i, 'A'+j%26, strings.Repeat("c{1000}", 250))
			}) + `}}`)})
	}
	// Those that are just small enough, and different every time.
	light := func(round int) []definition {
		var all []definition
		for i := range 15 {
			all = append(all, definition{fmt.Sprintf("light%d", i),
				json.RawMessage(`{"properties":{` + repeated(8, func(j int) string {
					return fmt.Sprintf(`"p%d":{"pattern":"%d_%d_%d(?:a?b){900}"}`, j, round, i, j)
				}) + `}}`)})
		}
		return all
	}
	a.under(t, time.Minute, func(ctx context.Context) {
		for round := range 10 {
			conn := dialRaw(t, a.pods[0].url, fmt.Sprint("attacker-", round)) // one session may not register so much
			rejected := registerRaw(t, conn, tools)
			if len(rejected) != 15 || rejected["honest_tool"] != "" {
				t.Errorf("%d tools were rejected", len(rejected))
			}
			if reason := rejected["heavy0"]; !strings.Contains(reason, "pattern") || !strings.Contains(reason, "1024") {
				t.Errorf("the reason does not name the limit: %q", reason)
			}
			registerRaw(t, conn, light(round))
			conn.Close()
		}
	})
	a.peakBelow(t, schemaPeak)
	a.calmWithin(t, time.Second)
}

// expensive are schemas with arguments below 1 MiB that are expensive to validate together.
func expensive() map[string]struct{ schema, args string } {
	name := func(i int) string {
		return fmt.Sprintf(`"%c%c%c%c"`, 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576%26)
	}
	nested := strings.Repeat(`{"n":`, 60) + `{"x":1}` + strings.Repeat("}", 60)
	return map[string]struct{ schema, args string }{
		"required": {`{"properties":{"a":{"items":{"required":[` + repeated(8800, name) + `]}}}}`, `{"a":[` +
			repeated(340_000, constantly("{}")) + `]}`},
		"any_of": {`{"properties":{"a":{"items":{"anyOf":[` + repeated(33, constantly(`{"type":"string"}`)) +
			`]}}}}`, `{"a":[` + repeated(490_000, constantly("1")) + `]}`},
		"all_of": {`{"properties":{"a":{"items":{"allOf":[` + repeated(300, constantly(`{"minimum":0.5}`)) + `]}}}}`,
			`{"a":[` + repeated(240_000, constantly("1.5")) + `]}`},
		"multiple": {`{"properties":{"a":{"allOf":[` + repeated(2500, constantly(`{"multipleOf":7}`)) + `]}}}`,
			`{"a":` + strings.Repeat("7", 1_000_000) + `}`},
		"enum": {`{"properties":{"a":{"items":{"not":{"enum":[` +
			repeated(12_000, func(i int) string { return fmt.Sprint(1000 + i%8999) }) + `]}}}}}`, `{"a":[` +
			repeated(500_000, constantly("1")) + `]}`},
		"unique": {`{"properties":{"a":{"allOf":[` + repeated(1000, constantly(`{"uniqueItems":true}`)) + `]}}}`,
			`{"a":[` + repeated(140_000, func(i int) string { return fmt.Sprint(i) }) + `]}`},
		"names": {`{"properties":{"a":{"patternProperties":{` +
			repeated(20, func(i int) string { return fmt.Sprintf(`"a{1,%d}b":true`, 500+i) }) + `}}}}`, `{"a":{` +
			repeated(80_000, func(i int) string { return fmt.Sprintf(`"aaa%d":1`, i) }) + `}}`},
		"recursion": {`{"properties":{"n":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},"additionalProperties":false}`,
			nested},
		"dependents": {`{"$defs":{"l0":{},` + repeated(500, func(i int) string {
			return fmt.Sprintf(`"l%d":{"dependentSchemas":{"a":{"$ref":"#/$defs/l%d"}}}`, i+1, i)
		}) + `},"properties":{"a":{"items":{"$ref":"#/$defs/l500"}}}}`, `{"a":[` +
			repeated(120_000, constantly(`{"a":1}`)) + `]}`},
		"text": {`{"properties":{"a":{"pattern":"^(?:[a-q][^u-z]{1,900})*x"}}}`, `{"a":"` +
			strings.Repeat("a", 900_000) + `"}`},
	}
}

// Callers with expensive arguments, several at a time, some of whom hang up: what they ask for ends with their time, is
// answered, and does not run if its time is up.
func TestAttackValidation(t *testing.T) {
	a := startAttacked(t, 1)
	conn := dialRaw(t, a.pods[0].url, "attacker")
	defer conn.Close()
	var tools []definition
	for name, tt := range expensive() {
		tools = append(tools, definition{name, json.RawMessage(tt.schema)})
	}
	tools = append(tools, definition{"program", json.RawMessage(`{"properties":{"a":{"pattern":"^(?:` +
		strings.Repeat("a?", 100) + `){200}$"}}}`)})
	rejected := registerRaw(t, conn, tools)
	if reason := rejected["program"]; !strings.Contains(reason, "instructions") || len(rejected) != 1 {
		t.Errorf("rejected: %q", rejected)
	}
	ran := make(chan string, 1000) // names of the tools that ran
	go func() {
		_ = conn.SetReadDeadline(time.Time{})
		for {
			var f struct{ Type, ID, Name string }
			if conn.ReadJSON(&f) != nil {
				close(ran)
				return
			}
			if f.Type == "tool_call_request" {
				ran <- f.Name
				_ = conn.WriteJSON(map[string]any{"type": "tool_result", "id": f.ID, "output": "ok", "success": true})
			}
		}
	}()
	a.under(t, time.Minute, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for name, tt := range expensive() {
			attackers.Go(func() {
				for _, disconnect := range []time.Duration{0, 300 * time.Millisecond, 0} {
					attackCall(t, ctx, a.pods[0].url, name, tt.args, disconnect)
				}
			})
		}
		attackers.Wait()
	})
	a.peakBelow(t, schemaPeak)
	a.calmWithin(t, time.Second)
	conn.Close()
	for name := range ran {
		t.Errorf("%s ran, although its arguments are wrong or take too long", name)
	}
}

// attackCall makes one call of three seconds, and checks that its answer comes in time, however the call went. With
// disconnect it leaves before.
func attackCall(t *testing.T, ctx context.Context, url, tool, args string, disconnect time.Duration) {
	const allowed = 3 * time.Second
	if disconnect > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, disconnect)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/sessions/attacker/tools/"+tool+"/call",
		strings.NewReader(fmt.Sprintf(`{"timeout_ms":%d,"args":%s}`, allowed.Milliseconds(), args)))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	took := time.Since(began)
	if disconnect > 0 {
		if err == nil {
			resp.Body.Close()
		}
		return
	}
	if err != nil {
		t.Errorf("%s: no answer after %v: %v", tool, took, err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	t.Logf("%s: %s after %v, %d bytes: %.160s", tool, resp.Status, took.Round(time.Millisecond), len(body), body)
	if err != nil || len(body) > 100_000 {
		t.Errorf("%s: %d bytes of answer, %v", tool, len(body), err)
	}
	if resp.StatusCode >= 500 && resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s: %s", tool, resp.Status)
	}
	if took > allowed+5*time.Second { // generous: the machine is busy
		t.Errorf("%s: answered after %v", tool, took)
	}
}

// Arguments that take fifty times their size once they are decoded, in calls with a key, which are compared by what
// they mean.
func TestAttackKeyedArguments(t *testing.T) {
	a := startAttacked(t, 1)
	connectDevice(t, a.pods[0].url, "attacker", echoTool())
	args := `{"a":[` + repeated(130_000, constantly(`{"":1}`)) + `]}`
	a.under(t, time.Minute, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for i := range 30 {
			attackers.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost,
					a.pods[0].url+"/api/sessions/attacker/tools/echo/call",
					strings.NewReader(`{"timeout_ms":3000,"args":`+args+`}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+fleetToken)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Idempotency-Key", fmt.Sprint("key-", i))
				resp, err := http.DefaultClient.Do(req)
				if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
					return // refused before all of it was sent: an identity has its share of long bodies
				}
				if err != nil {
					t.Errorf("no answer: %v", err)
					return
				}
				resp.Body.Close()
			})
		}
		attackers.Wait()
	})
	a.peakBelow(t, schemaPeak)
	a.calmWithin(t, time.Second)
}

// Devices that register, connection after connection, what is slow to compile: an honest one is served and can
// register.
func TestAttackCompiling(t *testing.T) {
	a := startAttacked(t, 1)
	slow := func(n int) []definition {
		classes := strings.Repeat(`[\\pL\\pN]`, 30)
		var all []definition
		for i := range 12 {
			all = append(all, definition{fmt.Sprintf("t%d", i), json.RawMessage(fmt.Sprintf(
				`{"description":"%d.%d","pattern":"%s(?i)[一-龥B-ҍ]","allOf":[%s],"x":{%s}}`, n, i, classes,
				repeated(60, func(i int) string { return fmt.Sprintf(`{"$ref":"#/x/d%d"}`, i) }),
				repeated(1500, func(i int) string { return fmt.Sprintf(`"d%d":{"minimum":%d}`, i, i) })))})
		}
		return all
	}
	a.under(t, time.Minute, func(ctx context.Context) {
		var attackers sync.WaitGroup
		for i := range 6 {
			attackers.Go(func() {
				for j := range 3 {
					conn := dialRaw(t, a.pods[0].url, fmt.Sprint("attacker-", i))
					if rejected := registerRaw(t, conn, slow(10*i+j)); len(rejected) > 0 {
						t.Logf("rejected: %.200v", rejected)
					}
					conn.Close()
				}
			})
		}
		began := time.Now()
		conn := dialRaw(t, a.pods[0].url, "newcomer")
		registerRaw(t, conn, []definition{{"new_tool", json.RawMessage(`{"properties":{"a":{"type":"string"}}}`)}})
		t.Logf("an honest device registered within %v", time.Since(began).Round(time.Millisecond))
		attackers.Wait()
	})
	a.peakBelow(t, schemaPeak)
	a.calmWithin(t, time.Second)
}
