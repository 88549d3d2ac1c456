package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/node"
	"github.com/farhand/farhand/ws/node/nodetest"
)

var protocolSchema = sync.OnceValues(func() (nodetest.Schema, error) {
	return nodetest.ReadSchema("testdata/schema/gateway-protocol.json")
})

// recorded is a line of a recording.
type recorded struct {
	From  string          `json:"from"`
	Frame json.RawMessage `json:"frame"`
}

// recordings returns the frames of real nodes and gateways, by file.
func recordings(t testing.TB) map[string][]recorded {
	t.Helper()
	files, err := filepath.Glob("testdata/recorded/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	all := make(map[string][]recorded)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(strings.NewReader(string(text)))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var r recorded
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[name] = append(all[name], r)
		}
	}
	return all
}

// frame is what tests look at in frames of both sides.
type frame struct {
	ID      string `json:"id"`
	Method  string `json:"method"`
	Event   string `json:"event"`
	Payload struct {
		Nonce string `json:"nonce"`
		TS    int64  `json:"ts"`
	} `json:"payload"`
	Params struct {
		Device struct {
			ID       string `json:"id"`
			SignedAt int64  `json:"signedAt"`
		} `json:"device"`
	} `json:"params"`
}

// The connect frames of real nodes of all recorded versions are accepted, with their genuine signatures, and with no
// challenge but their own.
func TestRealNodesAreAccepted(t *testing.T) {
	accepted := make(map[string]bool)
	for name, lines := range recordings(t) {
		var challenge node.Challenge
		for _, line := range lines {
			var f frame
			if err := json.Unmarshal(line.Frame, &f); err != nil {
				t.Fatal(err)
			}
			if f.Event == "connect.challenge" {
				challenge = node.Challenge{Nonce: f.Payload.Nonce, At: time.UnixMilli(f.Payload.TS)}
			}
			if f.Method != "connect" || challenge.Nonce == "" {
				continue
			}
			at := time.UnixMilli(f.Params.Device.SignedAt)
			hello, refusal := node.Handshake(line.Frame, challenge, at)
			if refusal != nil {
				t.Errorf("%s: %v %s", name, refusal, refusal.Frame())
				continue
			}
			if hello.DeviceID != f.Params.Device.ID || hello.Request != f.ID || len(hello.Node.Commands) == 0 {
				t.Errorf("%s: %+v", name, hello)
			}
			accepted[fmt.Sprint(hello.Version, " ", hello.Protocol)] = true
			for _, other := range []node.Challenge{{Nonce: challenge.Nonce + "x"}, {}} {
				if _, refusal := node.Handshake(line.Frame, other, at); refusal == nil {
					t.Errorf("%s: accepted for another challenge", name)
				}
			}
			if _, refusal := node.Handshake(line.Frame, challenge, at.Add(node.MaxSkew+time.Second)); refusal == nil {
				t.Errorf("%s: accepted too late", name)
			}
		}
	}
	if len(accepted) < 3 {
		t.Errorf("only %v were recorded", accepted)
	}
}

// A signature covers all that it should: a frame with another role, client, token, platform or time is refused.
func TestSignatureCoversTheFrame(t *testing.T) {
	key := nodetest.NewKey(t)
	now := time.Now()
	good := nodetest.Connect{Key: key, Nonce: "n", At: now, Auth: map[string]string{"token": "t"}, Family: "Linux"}
	challenge := node.Challenge{Nonce: "n", At: now}
	if _, refusal := node.Handshake(good.Frame(), challenge, now); refusal != nil {
		t.Fatal(refusal)
	}
	for was, is := range map[string]string{
		`"token":"t"`: `"token":"u"`, `"platform":"linux"`: `"platform":"darwin"`,
		`"deviceFamily":"Linux"`: `"deviceFamily":"Mac"`,
		`"id":"node-host"`:       `"id":"cli"`, `"mode":"node"`: `"mode":"test"`,
		`"scopes":[]`: `"scopes":["operator.admin"]`,
		fmt.Sprintf(`"signedAt":%d`, now.UnixMilli()): fmt.Sprintf(`"signedAt":%d`, now.UnixMilli()+1),
		`"auth":{"token":"t"}`:                        `"auth":{"deviceToken":"u"}`,
		`"publicKey":"`:                               `"publicKey":"A`,
		`"id":"` + key.ID:                             `"id":"` + strings.ToUpper(key.ID),
		`"signature":"`:                               `"signature":"A`,
		`"nonce":"n"`:                                 `"nonce":"m"`,
	} {
		text := string(good.Frame())
		if !strings.Contains(text, was) {
			t.Fatalf("%s lacks %s", text, was)
		}
		if _, refusal := node.Handshake([]byte(strings.Replace(text, was, is, 1)), challenge, now); refusal == nil {
			t.Errorf("%s became %s, and the signature was accepted", was, is)
		}
	}
}

// Each refusal is a valid answer, and tells a client whether and when to come back.
func TestRefusals(t *testing.T) {
	schema, err := protocolSchema()
	if err != nil {
		t.Fatal(err)
	}
	v4 := &node.Hello{Request: "1", Protocol: 4, DeviceID: "d"}
	v3 := &node.Hello{Request: "1", Protocol: 3, DeviceID: "d"}
	for name, c := range map[string]struct {
		refusal *node.Refusal
		want    []string
		not     string
	}{
		"pending": {v4.Pending("r1", "AB-12", "code", time.Second), []string{
			`"code":"PAIRING_REQUIRED"`, `"pauseReconnect":false`, `"requestId":"r1"`, `"retryAfterMs":1000`,
			`"recommendedNextStep":"wait_then_retry"`,
		}, "canRetry"},
		"pending of 3": {
			v3.Pending("r1", "AB-12", "code", time.Second), []string{`"requestId":"r1"`, `"code":"NOT_PAIRED"`},
			"PAIRING_REQUIRED",
		},
		"token": {
			v4.RefuseToken("no"), []string{"AUTH_TOKEN_MISMATCH", `"canRetryWithDeviceToken":true`}, "retryAfterMs",
		},
		"device token": {v4.RefuseDeviceToken("no"), []string{"AUTH_DEVICE_TOKEN_MISMATCH"}, "retryAfterMs"},
		"busy": {
			v4.Wait("busy", 2*time.Second), []string{`"code":"UNAVAILABLE"`, `"retryable":true`, `"retryAfterMs":2000`},
			"details",
		},
	} {
		text := string(c.refusal.Frame())
		if err := schema.Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s lacks %s", name, text, want)
			}
		}
		if c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: %s has %s", name, text, c.not)
		}
		if len(c.refusal.Reason) > 123 {
			t.Errorf("%s: the reason is too long for a close frame", name)
		}
	}
	for _, r := range []*node.Refusal{node.Late(), node.TooBig(), node.Restarting(), node.Gone()} {
		if r.Frame() != nil || r.Close == 0 {
			t.Errorf("%+v answers a request that there was not", r)
		}
	}
}

// FuzzHandshake: whatever a client sends, there is one decision, and its frame is valid.
func FuzzHandshake(f *testing.F) {
	for _, lines := range recordings(f) {
		for _, line := range lines {
			if line.From == "node" {
				f.Add([]byte(line.Frame))
			}
		}
	}
	key := nodetest.NewKey(f)
	f.Add(nodetest.Connect{Key: key, Nonce: "n", Permissions: map[string]bool{"camera": true}}.Frame())
	f.Add([]byte(`{"type":"req","id":"1","method":"connect","params":{"client":{},"device":{},"auth":{}}}`))
	schema, err := protocolSchema()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		hello, refusal := node.Handshake(frame, node.Challenge{Nonce: "n", At: time.Now()}, time.Now())
		if (hello == nil) == (refusal == nil) {
			t.Fatalf("%v and %v", hello, refusal)
		}
		if refusal != nil {
			if err := schema.Check(refusal.Frame()); err != nil || len(refusal.Reason) > 123 {
				t.Fatalf("%s: %v", refusal.Frame(), err)
			}
			return
		}
		if err := schema.Check(node.Welcome{Version: "1", Connection: "c", MaxPayload: 1, MaxBuffered: 1,
			Tick: time.Second}.Frame(hello)); err != nil {
			t.Fatal(err)
		}
	})
}
