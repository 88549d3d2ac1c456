package farhand_test

import (
	"crypto/ed25519"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/ws/client"
)

type rotated struct {
	ID, Key, Credential string
	Former              *struct {
		ExpiresAt string `json:"expires_at"`
		LastUsed  string `json:"last_used_at"`
	} `json:"former_secret"`
}

// wantClosed waits until the gateway closes a socket.
func wantClosed(t *testing.T, socket *websocket.Conn) {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	for {
		_, _, err := socket.ReadMessage()
		if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code == websocket.CloseNormalClosure {
			return
		}
		if err != nil {
			t.Fatalf("the socket ended with %v", err)
		}
	}
}

// TestRotateAKey: on two pods the former secret works until the overlap ends, with the sockets that it opened, and the
// revocation of the key ends both secrets.
func TestRotateAKey(t *testing.T) {
	signing := false // the second pod already has the secret of the fleet, which is being rolled out
	p := newPairingPods(t, 2, func(cfg *farhand.Config) {
		if signing {
			cfg.FleetSecret = "a-secret-that-Redis-does-not-know"
		}
		signing = true
	})
	var made rotated
	p.ask(http.MethodPost, p.urls[0]+"/api/keys", pairToken, nil,
		map[string]any{"roles": []string{"device", "caller"}}, &made)
	status := func(token string) int {
		return p.ask(http.MethodGet, p.urls[1]+"/api/me", token, nil, nil, nil)
	}
	p.eventually("the key works", func() bool { return status(made.Key) == http.StatusOK })
	socket := connect(t, p.urls[1], "s1", made.Key)

	rotate := func(overlap int) (r rotated) {
		t.Helper()
		if got := p.ask(http.MethodPost, p.urls[0]+"/api/keys/"+made.ID+"/rotate", pairToken, nil,
			map[string]any{"overlap": overlap}, &r); got != http.StatusOK {
			t.Fatalf("rotate: status %d", got)
		}
		return r
	}
	second := rotate(3600)
	if second.ID != made.ID || second.Key == made.Key || second.Former == nil {
		t.Errorf("rotated to %+v", second)
	}
	if a, b := status(made.Key), status(second.Key); a != http.StatusOK || b != http.StatusOK {
		t.Errorf("during the overlap: %d and %d", a, b)
	}
	third := rotate(1)
	p.eventually("the oldest secret ends at once", func() bool { return status(made.Key) == http.StatusUnauthorized })
	wantClosed(t, socket)
	p.eventually("the second ends with the overlap", func() bool {
		return status(second.Key) == http.StatusUnauthorized && status(third.Key) == http.StatusOK
	})
	fourth := rotate(3600)
	other := connect(t, p.urls[1], "s2", third.Key)
	if a, b := status(third.Key), status(fourth.Key); a != http.StatusOK || b != http.StatusOK {
		t.Errorf("before the revocation: %d and %d", a, b)
	}
	got := p.ask(http.MethodDelete, p.urls[0]+"/api/keys/"+made.ID, pairToken, nil, nil, nil)
	if got != http.StatusNoContent {
		t.Fatalf("revoke: %d", got)
	}
	p.eventually("both secrets end", func() bool {
		return status(third.Key) == http.StatusUnauthorized && status(fourth.Key) == http.StatusUnauthorized
	})
	wantClosed(t, other)
}

// TestADeviceRotatesItsCredential: the Go SDK rotates the credential of a device with a key, twice with the same
// credential as after a lost answer. The device's other copy works on, and no copy without the key rotates.
func TestADeviceRotatesItsCredential(t *testing.T) {
	p := newPairingPods(t, 2, nil)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	first := p.paired("door-1", public)
	thief := http.Header{"Farhand-Signature": {"x.y"}}
	if got := p.ask(http.MethodPost, p.urls[0]+"/pair/rotate", first, thief, nil, nil); got != http.StatusUnauthorized {
		t.Errorf("without the key: %d", got)
	}
	was := client.Credential{Token: first, DeviceID: "door-1", Key: private}
	file := client.FileStore(t.TempDir() + "/credential.json")
	rotate := func(c client.Credential) client.Credential {
		t.Helper()
		device, err := client.New(p.urls[1], client.WithCredential(c))
		if err != nil {
			t.Fatal(err)
		}
		next, err := device.Rotate(t.Context(), client.RotateOptions{Store: file, Overlap: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	lost := rotate(was)
	next := rotate(was)
	if kept, err := file.Load(t.Context()); err != nil || kept.Token != next.Token {
		t.Errorf("stored %v %v", kept.Token == next.Token, err)
	}
	challenge := func(token string) int {
		return p.ask(http.MethodPost, p.urls[0]+"/pair/challenge", token, nil, nil, nil)
	}
	p.eventually("the secret of the lost answer ends", func() bool {
		return challenge(lost.Token) == http.StatusUnauthorized
	})
	if a, b := challenge(was.Token), challenge(next.Token); a != http.StatusOK || b != http.StatusOK {
		t.Errorf("during the overlap: %d and %d", a, b)
	}
	var byOperator rotated
	if got := p.ask(http.MethodPost, p.urls[0]+"/api/devices/door-1/rotate", pairToken, nil,
		map[string]any{"overlap": 0}, &byOperator); got != http.StatusOK || byOperator.Credential == "" {
		t.Fatalf("by the operator: %d", got)
	}
	p.eventually("the others end at once", func() bool {
		return challenge(was.Token) == http.StatusUnauthorized && challenge(next.Token) == http.StatusUnauthorized &&
			challenge(byOperator.Credential) == http.StatusOK
	})
	got := p.ask(http.MethodDelete, p.urls[0]+"/api/devices/door-1", pairToken, nil, nil, nil)
	if got != http.StatusNoContent {
		t.Fatalf("revoke: %d", got)
	}
	p.eventually("the credential ends", func() bool { return challenge(byOperator.Credential) == http.StatusUnauthorized })
}

// TestADeviceCannotRotateForever: a stolen credential fills neither the log of changes nor the share of its tenant's
// admins, who can still revoke it.
func TestADeviceCannotRotateForever(t *testing.T) {
	p := newPairingPods(t, 1, nil)
	stolen := p.paired("door-1", nil)
	rotate := p.urls[0] + "/pair/rotate"
	answers := map[int]int{}
	for range 15 {
		answers[p.ask(http.MethodPost, rotate, stolen, nil, map[string]any{"overlap": 3600}, nil)]++
	}
	if answers[http.StatusOK] != 10 || answers[http.StatusTooManyRequests] != 5 {
		t.Errorf("answers by status: %v", answers)
	}
	got := p.ask(http.MethodDelete, p.urls[0]+"/api/devices/door-1", pairToken, nil, nil, nil)
	if got != http.StatusNoContent {
		t.Errorf("revoke: %d", got)
	}
}
