package farhand_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
)

// rawDevice is a device on a socket. Its calls wait until the test answers them.
type rawDevice struct {
	*testing.T
	conn  *websocket.Conn
	write sync.Mutex // one frame at a time
	calls chan rawCall
	other chan string // frames of other types
}

type rawCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

func (p *pairingPods) rawDevice(pod int, session, token, hello, tools string) *rawDevice {
	p.Helper()
	d := &rawDevice{T: p.T, calls: make(chan rawCall, 256), other: make(chan string, 256)}
	d.conn = connect(p.T, p.urls[pod], session, token)
	d.send(hello)
	d.send(`{"type":"register_tools","tools":` + tools + `}`)
	done := make(chan struct{})
	p.Cleanup(func() { d.conn.Close(); <-done })
	go func() {
		defer close(done)
		for {
			_, text, err := d.conn.ReadMessage()
			if err != nil {
				return
			}
			var f struct {
				Type string `json:"type"`
				rawCall
			}
			_ = json.Unmarshal(text, &f) // the gateway sends objects
			if f.Type == "tool_call_request" {
				d.calls <- f.rawCall
			} else {
				d.other <- string(text)
			}
		}
	}()
	return d
}

func (d *rawDevice) send(frame string) {
	d.Helper()
	d.write.Lock()
	defer d.write.Unlock()
	if err := d.conn.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		d.Error(err)
	}
}

// heard returns the next frame that has a text.
func (d *rawDevice) heard(text string) string {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), limit)
	defer cancel()
	for {
		select {
		case frame := <-d.other:
			if strings.Contains(frame, text) {
				return frame
			}
		case <-ctx.Done():
			d.Fatalf("no frame with %s", text)
		}
	}
}

func (d *rawDevice) next() rawCall {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), limit)
	defer cancel()
	select {
	case c := <-d.calls:
		return c
	case <-ctx.Done():
		d.Fatal("no call came")
		return rawCall{}
	}
}

func (d *rawDevice) answer(c rawCall, output string) {
	d.Helper()
	d.send(fmt.Sprintf(`{"type":"tool_result","id":%q,"output":%q}`, c.ID, output))
}

// answerAll answers every call until the test ends.
func (d *rawDevice) answerAll(output string) {
	go func() {
		for {
			select {
			case c := <-d.calls:
				d.write.Lock()
				_ = d.conn.WriteMessage(websocket.TextMessage,
					fmt.Appendf(nil, `{"type":"tool_result","id":%q,"output":%q}`, c.ID, output))
				d.write.Unlock()
			case <-d.Context().Done():
				return
			}
		}
	}()
}

// keyOf makes a key of a user for calls and devices.
func (p *pairingPods) keyOf(user string) string {
	p.Helper()
	var made struct{ Key string }
	p.ask(http.MethodPost, p.urls[0]+"/api/keys", pairToken, nil,
		map[string]any{"roles": []string{"device", "caller"}, "user_id": user}, &made)
	return made.Key
}

const plainConnect = `{"type":"connect"}`

func TestToolsDeclareEffectsAndTags(t *testing.T) {
	p := newPairingPods(t, 2, nil)
	many := strings.TrimSuffix(strings.Repeat(`"t",`, 17), ",")
	d := p.rawDevice(0, "phone", pairToken, plainConnect, `[
		{"name":"snap","effects":{"class":"read","needs_foreground":true,"permission":"camera","cost":"free",
		 "typical_ms":1200,"shutter":1},"tags":["photo","camera"],"annotations":{"readOnlyHint":true}},
		{"name":"notify","effects":{"class":"people"},"tags":["photo"],"security_level":"user_confirm"},
		{"name":"bare"},
		{"name":"odd","effects":{"class":"magic"}}, {"name":"bomb","tags":[`+many+`]},
		{"name":"long","tags":["`+strings.Repeat("x", 33)+`"]}]`)
	registered := d.heard("tools_registered")
	for _, want := range []string{`"registered":3`, "effects.class", "at most 16", "a tag must match",
		"effects.shutter"} {
		if !strings.Contains(registered, want) {
			t.Errorf("%s is missing in %s", want, registered)
		}
	}
	names := func(query string) string {
		var list struct{ Tools []struct{ Name string } }
		p.ask(http.MethodGet, p.urls[1]+"/api/tools?source_type=remote&"+query, pairToken, nil, nil, &list)
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		return strings.Join(names, " ")
	}
	for query, want := range map[string]string{
		"limit=9": "bare notify snap", "tag=photo": "notify snap", "tag=photo&tag=camera": "snap", "tag=none": "",
		"level=safe": "bare snap", "level=user_confirm": "notify", "annotation=readOnlyHint": "snap",
	} {
		if got := names(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	_, text := send(t, p.urls[1]+"/api/tools?name=snap", "", pairToken)
	if want := `"effects":{"class":"read","needs_foreground":true,"permission":"camera","cost":"free",` +
		`"typical_ms":1200},"tags":["camera","photo"]`; !strings.Contains(text, want) {
		t.Errorf("%s is missing in %s", want, text)
	}
	for _, bad := range []string{"tag=" + strings.Repeat("x", 33), "level=high", "annotation=title"} {
		if status, _ := send(t, p.urls[1]+"/api/tools?"+bad, "", pairToken); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", bad, status)
		}
	}
	_, text = send(t, p.urls[1]+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, pairToken)
	if want := `"_meta":{"farhand/effects":{"class":"people"},"farhand/tags":["photo"]}`; !strings.Contains(text,
		want) {
		t.Errorf("%s is missing in %s", want, text)
	}
}

func TestForegroundAndDefaultDevice(t *testing.T) {
	p := newPairingPods(t, 2, nil)
	ann, ben := p.keyOf("ann"), p.keyOf("ben")
	hello := func(device string) string {
		return `{"type":"connect","device_id":"` + device + `","capabilities":["presence"]}`
	}
	const tools = `[{"name":"snap","effects":{"needs_foreground":true}},{"name":"ring"}]`
	phone := p.rawDevice(0, "s-phone", ann, hello("phone"), tools)
	tablet := p.rawDevice(1, "s-tablet", ann, hello("tablet"), tools)
	phone.heard("tools_registered")
	tablet.heard("tools_registered")
	phone.answerAll("by phone")
	tablet.answerAll("by tablet")
	call := func(pod int, tool, target string) string {
		_, text := send(t, p.urls[pod]+"/api/tools/"+tool+"/call", `{"target":`+target+`}`, ann)
		return text
	}
	wants := func(tool, target, want string) {
		t.Helper()
		for pod := range p.urls {
			p.eventually(tool+" "+target+" gives "+want, func() bool {
				return strings.Contains(call(pod, tool, target), want)
			})
		}
	}
	const user, onPhone = `{"user_id":"ann"}`, `{"device_id":"phone"}`
	wants("ring", user, "ambiguous_target")
	phone.send(`{"type":"presence","foreground":false}`)
	wants("snap", onPhone, `"needs_foreground"`)
	wants("ring", onPhone, "by phone")
	phone.send(`{"type":"presence","foreground":true}`)
	wants("snap", onPhone, "by phone")
	wants("ring", user, "by phone") // the only one in the foreground
	url := p.urls[1] + "/api/users/ann/default-device"
	for who, want := range map[string]int{ben: http.StatusForbidden, ann: http.StatusOK, pairToken: http.StatusOK} {
		if status := p.ask(http.MethodPut, url, who, nil, map[string]any{"device_id": "tablet"}, nil); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	wants("ring", user, "by phone") // still in the foreground
	phone.send(`{"type":"presence","foreground":false}`)
	wants("ring", user, "by tablet")
	phone.send(`{"type":"set_default"}`)
	phone.heard(`"default_set","device_id":"phone"`)
	wants("ring", user, "by phone")
	if _, text := send(t, url, "", ann); !strings.Contains(text, `"phone"`) {
		t.Error(text)
	}
	if status, _ := send(t, url, "", ben); status != http.StatusForbidden {
		t.Errorf("another user reads it: status %d", status)
	}
	if status := p.ask(http.MethodDelete, url, ann, nil, nil, nil); status != http.StatusNoContent {
		t.Errorf("status %d", status)
	}
	wants("ring", user, "ambiguous_target")
}

// With queue, a call that needs the foreground waits until the device reports it: of a connected device, and of one
// that was asleep and is back in the background. Other calls with queue wait behind it, those without do not.
func TestCallsWaitForTheForeground(t *testing.T) {
	p := newPairingPods(t, 2, nil)
	const hello = `{"type":"connect","device_id":"phone","capabilities":["presence"]}`
	const tools = `[{"name":"snap","effects":{"needs_foreground":true}},{"name":"ring"}]`
	d := p.rawDevice(0, "phone", pairToken, hello, tools)
	d.heard("tools_registered")
	call := func(pod int, tool, queue string, want int) (c queuedCall) {
		t.Helper()
		body := `{"target":{"device_id":"phone"}` + queue + `}`
		status, text := send(t, p.urls[pod]+"/api/tools/"+tool+"/call", body, pairToken)
		if err := json.Unmarshal([]byte(text), &c); err != nil || status != want {
			t.Fatalf("%s: %d %s", tool, status, text)
		}
		return c
	}
	const hour = `,"mode":"async","queue":{"ttl_ms":3600000}`
	ended := func(c queuedCall, want string) {
		t.Helper()
		_, text := send(t, p.urls[1]+"/api/calls/"+c.CallID+"?wait_ms=20000", "", pairToken)
		if !strings.Contains(text, `"state":"succeeded"`) || !strings.Contains(text, want) {
			t.Errorf("%s instead of %q", text, want)
		}
	}
	background := func() { // both pods know it
		t.Helper()
		d.send(`{"type":"presence","foreground":false}`)
		for pod := range p.urls {
			p.eventually("a call is refused", func() bool {
				_, text := send(t, p.urls[pod]+"/api/tools/snap/call",
					`{"target":{"device_id":"phone"},"timeout_ms":1000}`, pairToken)
				return strings.Contains(text, `"needs_foreground"`)
			})
		}
		for len(d.calls) > 0 { // that came before the gateway knew
			<-d.calls
		}
	}
	first := func() { // what comes next is the call of ring, then those of snap in their order
		t.Helper()
		for pod := range p.urls {
			snap := call(pod, "snap", hour, http.StatusAccepted)
			behind := call(1-pod, "ring", hour, http.StatusAccepted)
			if snap.State != "queued" || snap.Place != 1 || behind.State != "queued" || behind.Place != 2 {
				t.Errorf("queued: %+v, behind it %+v", snap, behind)
			}
			beside := call(pod, "ring", `,"mode":"async"`, http.StatusAccepted)
			for _, next := range []struct {
				queuedCall
				name string
			}{{beside, "ring"}, {snap, "snap"}, {behind, "ring"}} {
				c := d.next()
				if c.ID != next.CallID || c.Name != next.name {
					t.Fatalf("%s %s came instead of %s %s", c.Name, c.ID, next.name, next.CallID)
				}
				d.answer(c, "by "+next.CallID)
				ended(next.queuedCall, "by "+next.CallID)
				if next.queuedCall == beside {
					d.send(`{"type":"presence","foreground":true}`)
				}
			}
			if len(d.calls) > 0 {
				t.Errorf("%d more calls came", len(d.calls))
			}
			background()
		}
	}
	background()
	first()

	d.conn.Close()
	p.eventually("the device sleeps", func() bool {
		_, text := send(t, p.urls[1]+"/api/sessions?presence=sleeping", "", pairToken)
		return strings.Contains(text, `"phone"`)
	})
	snap := call(1, "snap", hour, http.StatusAccepted)
	d = p.rawDevice(1, "phone", pairToken, hello, `[]`)
	d.send(`{"type":"presence","foreground":false}`)
	d.send(`{"type":"register_tools","tools":` + tools + `}`)
	beside := call(0, "ring", `,"mode":"async"`, http.StatusAccepted)
	c := d.next()
	if c.ID != beside.CallID {
		t.Errorf("%s came in the background", c.Name)
	}
	d.answer(c, "rung")
	ended(beside, "rung")
	if c := read[queuedCall](t, p.urls[0]+"/api/calls/"+snap.CallID, "", pairToken); c.State != "queued" {
		t.Errorf("in the background: %+v", c)
	}
	d.send(`{"type":"presence","foreground":true}`)
	if c = d.next(); c.ID != snap.CallID {
		t.Errorf("%s came", c.Name)
	}
	d.answer(c, "a cat")
	ended(snap, "a cat")
}

// Calls that are accepted one after the other, on either pod, reach the device in that order, one at a time. Neither
// calls without an order nor other devices wait for them, and they cannot take all places of the device.
func TestOrderedCalls(t *testing.T) {
	p := newPairingPods(t, 2, nil)
	d := p.rawDevice(0, "phone", pairToken, plainConnect, `[{"name":"step"},{"name":"look"}]`)
	other := p.rawDevice(1, "other", pairToken, plainConnect, `[{"name":"step"}]`)
	d.heard("tools_registered")
	other.heard("tools_registered")
	order := func(n int) (int, string) {
		return send(t, fmt.Sprintf("%s/api/sessions/phone/tools/step/call", p.urls[n%2]),
			fmt.Sprintf(`{"args":{"n":%d},"mode":"async","ordered":true}`, n), pairToken)
	}
	const n = 20
	for i := range n {
		if status, text := order(i); status != http.StatusAccepted {
			t.Fatalf("call %d: %d %s", i, status, text)
		}
	}
	for i := range n {
		c := d.next()
		if want := fmt.Sprintf(`{"n":%d}`, i); c.Name != "step" || string(c.Args) != want {
			t.Fatalf("%s %s, want %s", c.Name, c.Args, want)
		}
		if i == 0 { // a call without an order overtakes those that wait, on both pods
			for pod := range p.urls {
				answered := make(chan string, 1)
				go func() {
					_, text := send(t, p.urls[pod]+"/api/sessions/phone/tools/look/call", `{}`, pairToken)
					answered <- text
				}()
				look := d.next()
				if look.Name != "look" {
					t.Fatalf("%s %s came beside an ordered call", look.Name, look.Args)
				}
				d.answer(look, "seen")
				if text := <-answered; !strings.Contains(text, "seen") {
					t.Fatal(text)
				}
			}
			// Nor does another device wait.
			go func() {
				_, _ = send(t, p.urls[0]+"/api/sessions/other/tools/step/call", `{"ordered":true}`, pairToken)
			}()
			other.answer(other.next(), "done")
		}
		d.answer(c, "done")
	}
	// Ordered by tool, the calls of two tools come beside each other: those of each one at a time, in their order.
	for i := range 8 {
		tool := []string{"step", "look"}[i%2]
		status, text := send(t, fmt.Sprintf("%s/api/sessions/phone/tools/%s/call", p.urls[i/2%2], tool),
			fmt.Sprintf(`{"args":{"n":%d},"mode":"async","ordered":"tool"}`, i/2), pairToken)
		if status != http.StatusAccepted {
			t.Fatalf("call %d: %d %s", i, status, text)
		}
	}
	for i := range 4 {
		one, two := d.next(), d.next()
		for _, c := range []rawCall{one, two} {
			if want := fmt.Sprintf(`{"n":%d}`, i); one.Name == two.Name || string(c.Args) != want || len(d.calls) > 0 {
				t.Fatalf("round %d: %s %s, %s %s and %d more", i, one.Name, one.Args, two.Name, two.Args, len(d.calls))
			}
		}
		d.answer(one, "done")
		d.answer(two, "done")
	}
}

// Ordered calls take at most half of the places of a device, so others can still call it. Those beyond are refused.
func TestOrderedCallsLeaveRoom(t *testing.T) {
	p := newPairingPods(t, 2, nil)
	d := p.rawDevice(0, "phone", pairToken, plainConnect, `[{"name":"step"},{"name":"look"}]`)
	d.heard("tools_registered")
	for i := range 32 {
		status, text := send(t, p.urls[i%2]+"/api/sessions/phone/tools/step/call", `{"mode":"async","ordered":true}`,
			pairToken)
		if status != http.StatusAccepted {
			t.Fatalf("call %d: %d %s", i, status, text)
		}
	}
	first := d.next()
	status, text := send(t, p.urls[1]+"/api/sessions/phone/tools/step/call", `{"ordered":"tool","timeout_ms":60000}`,
		pairToken)
	if status != http.StatusTooManyRequests || !strings.Contains(text, `"busy"`) {
		t.Errorf("%d %s", status, text)
	}
	answered := make(chan string, 1)
	go func() {
		_, text := send(t, p.urls[1]+"/api/sessions/phone/tools/look/call", `{}`, pairToken)
		answered <- text
	}()
	d.answer(d.next(), "seen")
	if text := <-answered; !strings.Contains(text, "seen") {
		t.Error(text)
	}
	for c := first; ; c = d.next() {
		d.answer(c, "done")
		if c.ID != first.ID {
			break // the line goes on
		}
	}
}

func TestUploadsAsArguments(t *testing.T) {
	folder := "file://" + t.TempDir()
	p := newPairingPods(t, 2, func(c *farhand.Config) {
		c.BlobURL, c.BlobBytes = farhand.Secret(folder), 8<<20
	})
	ann, ben := p.keyOf("ann"), p.keyOf("ben")
	d := p.rawDevice(0, "phone", ann, plainConnect, `[{"name":"print","parameters":{"type":"object","required":["file"],
		"properties":{"file":{"type":"object","required":["url","sha256"],"properties":{"url":{"type":"string"}}}}}}]`)
	d.heard("tools_registered")
	data := bytes.Repeat([]byte("page "), 100_000)
	sum := sha256.Sum256(data)
	slot := func(token string, size int, sum string) (status int, up struct {
		UploadID string `json:"upload_id"`
		URL      string
	}) {
		status = p.ask(http.MethodPost, p.urls[1]+"/api/uploads", token, nil,
			map[string]any{"size": size, "sha256": sum, "mime_type": "text/plain"}, &up)
		return status, up
	}
	put := func(url string, data []byte) int {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, p.urls[0]+url, bytes.NewReader(data))
		req.Header.Set("Content-Type", "text/plain")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	_, up := slot(ann, len(data), hex.EncodeToString(sum[:]))
	call := func(token, id string) (int, string) {
		return send(t, p.urls[1]+"/api/sessions/phone/tools/print/call",
			`{"args":{"file":{"$upload":"`+id+`"},"n":1.50}}`, token)
	}
	if status, _ := call(ann, up.UploadID); status != http.StatusUnprocessableEntity {
		t.Errorf("before the bytes: status %d", status)
	}
	if status := put(up.URL, data); status != http.StatusNoContent {
		t.Fatalf("put: status %d", status)
	}
	fetched := make(chan []byte, 1)
	go func() {
		c := d.next()
		var args struct {
			N    json.Number
			File struct {
				URL, SHA256 string
				Size        int
				MIMEType    string `json:"mime_type"`
			}
		}
		_ = json.Unmarshal(c.Args, &args)
		resp, err := http.Get(p.urls[1] + args.File.URL)
		if err == nil {
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			fetched <- body
		}
		d.answer(c, args.File.SHA256+" "+strconv.Itoa(args.File.Size)+" "+args.File.MIMEType+" "+args.N.String())
	}()
	status, text := call(ann, up.UploadID)
	if want := hex.EncodeToString(sum[:]) + " 500000 text/plain 1.50"; status != 200 || !strings.Contains(text, want) {
		t.Fatalf("%d %s", status, text)
	}
	if body := <-fetched; !bytes.Equal(body, data) {
		t.Errorf("the device read %d bytes", len(body))
	}
	// Another user cannot use it: neither with a device that both may call, nor with an invented id.
	for token, id := range map[string]string{ben: up.UploadID, ann: strings.Repeat("0", 64), pairToken: up.UploadID} {
		if status, text := call(token, id); status != http.StatusUnprocessableEntity && status != http.StatusNotFound {
			t.Errorf("%d %s", status, text)
		}
	}
	// Other bytes than were promised are not kept.
	_, wrong := slot(ann, len(data), strings.Repeat("0", 64))
	if status := put(wrong.URL, data); status != http.StatusBadRequest {
		t.Errorf("wrong bytes: status %d", status)
	}
	// One caller gets an eighth of the tenant's bytes, and its failed upload counts no more.
	if status, _ := slot(ann, 600_000, strings.Repeat("0", 64)); status != http.StatusTooManyRequests {
		t.Errorf("beyond the caller's share: status %d", status)
	}
	if status, _ := slot(ben, 600_000, strings.Repeat("0", 64)); status != http.StatusCreated {
		t.Errorf("another caller: status %d", status)
	}
}
