package farhand_test

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Codes are guessed at three pods at once: as many are looked up as one source may try, and then also the right code is
// of no use there.
func TestPairingCodesGuessedInParallel(t *testing.T) {
	t.Parallel()
	p := newPairingPods(t, 3, nil)
	var a asked
	p.ask(http.MethodPost, p.urls[0]+"/pair", "", nil, map[string]any{"device_id": "cam-1"}, &a)
	const alphabet = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
	var wrong, limited atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			code := "2222-22" + string(alphabet[i%32]) + string(alphabet[i/32])
			switch status := p.ask(http.MethodPost, p.urls[i%3]+"/api/pairings", pairToken, nil,
				map[string]any{"code": code, "decision": "approve"}, nil); status {
			case http.StatusNotFound:
				wrong.Add(1)
			case http.StatusTooManyRequests:
				limited.Add(1)
			default:
				t.Errorf("a guess: status %d", status)
			}
		})
	}
	wg.Wait()
	if wrong.Load() != 10 || limited.Load() != 50 {
		t.Errorf("%d guesses were looked up, %d refused", wrong.Load(), limited.Load())
	}
	if status := p.ask(http.MethodPost, p.urls[1]+"/api/pairings", pairToken, nil,
		map[string]any{"code": a.Code, "decision": "approve"}, nil); status != http.StatusTooManyRequests {
		t.Errorf("the right code after them: status %d", status)
	}
}

// A credential is told once, however many ask on however many pods; a rejected device is told so; a code is used up.
func TestCredentialIsToldOnce(t *testing.T) {
	t.Parallel()
	p := newPairingPods(t, 2, nil)
	var a, b asked
	p.ask(http.MethodPost, p.urls[0]+"/pair", "", nil, map[string]any{}, &a)
	p.ask(http.MethodPost, p.urls[0]+"/pair", "", nil, map[string]any{}, &b)
	decide := func(code, decision string) int {
		return p.ask(http.MethodPost, p.urls[1]+"/api/pairings", pairToken, nil,
			map[string]any{"code": code, "decision": decision}, nil)
	}
	if decide(a.Code, "approve") != http.StatusOK || decide(b.Code, "reject") != http.StatusOK {
		t.Fatal("not decided")
	}
	if status := decide(a.Code, "reject"); status != http.StatusBadRequest {
		t.Errorf("a used code: status %d", status)
	}
	var told atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			var c collected
			status := p.ask(http.MethodPost, p.urls[i%2]+"/pair/status", "", nil,
				map[string]any{"secret": a.Secret}, &c)
			if c.Credential != "" {
				told.Add(1)
			} else if status != http.StatusNotFound {
				t.Errorf("status %d, %+v", status, c)
			}
		})
	}
	wg.Wait()
	if told.Load() != 1 {
		t.Errorf("the credential was told %d times", told.Load())
	}
	var c collected
	p.ask(http.MethodPost, p.urls[0]+"/pair/status", "", nil, map[string]any{"secret": b.Secret}, &c)
	if c.Status != "rejected" || c.Credential != "" {
		t.Errorf("the rejected device: %+v", c)
	}
}

// The credential of a device is that of one device, and of nothing else.
func TestDeviceIsNoOtherDevice(t *testing.T) {
	t.Parallel()
	p := newPairingPods(t, 1, nil)
	token := p.paired("cam-1", nil)
	for _, route := range []string{"/api/tools", "/api/devices", "/api/pairings", "/api/calls", "/v1/models"} {
		if status := p.ask(http.MethodGet, p.urls[0]+route, token, nil, nil, nil); status != http.StatusForbidden {
			t.Errorf("%s: status %d", route, status)
		}
	}
	conn, _ := p.dial(0, token, "")
	frame := `{"type":"connect","v":1,"device_id":"cam-2","capabilities":[]}`
	if err := conn.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	var closed *websocket.CloseError
	for closed == nil {
		if _, _, err := conn.ReadMessage(); err != nil && !errors.As(err, &closed) {
			t.Fatal(err)
		}
	}
	if closed.Text != "session_owner_mismatch" {
		t.Errorf("closed with %v", closed)
	}
	// Another request for the same device id needs the approver's word that it is the same device.
	var a asked
	p.ask(http.MethodPost, p.urls[0]+"/pair", "", nil, map[string]any{"device_id": "cam-1"}, &a)
	body := map[string]any{"code": a.Code, "decision": "approve"}
	if status := p.ask(http.MethodPost, p.urls[0]+"/api/pairings", pairToken, nil, body, nil); status != 400 {
		t.Errorf("a second device of one id: status %d", status)
	}
	body["replace"] = true
	if status := p.ask(http.MethodPost, p.urls[0]+"/api/pairings", pairToken, nil, body, nil); status != 200 {
		t.Errorf("replace: status %d", status)
	}
	p.eventually("the replaced credential has ended", func() bool {
		return p.ask(http.MethodPost, p.urls[0]+"/pair/challenge", token, nil, nil, nil) == http.StatusUnauthorized
	})
}
