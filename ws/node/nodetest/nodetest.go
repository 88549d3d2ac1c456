// Package nodetest has what tests need to be OpenClaw nodes: keys that sign connect frames, and the published schema of
// the protocol, with which every frame is checked.
package nodetest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Key is the identity of a node.
type Key struct {
	Public  ed25519.PublicKey
	private ed25519.PrivateKey
	ID      string // the SHA-256 of Public, in lower-case hexadecimal
}

// NewKey returns a new identity.
func NewKey(t testing.TB) Key {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(public)
	return Key{public, private, hex.EncodeToString(sum[:])}
}

// Connect is a connect frame. Its zero value is completed by Frame, except for what a test sets.
type Connect struct {
	Key         Key
	Nonce       string
	At          time.Time // signedAt; zero: now
	Payload     string    // version of the signed payload; empty: v3
	Min, Max    int       // protocol; zero: 4
	Role        string    // empty: node
	ClientID    string    // empty: node-host
	Platform    string    // empty: linux
	Family      string
	DisplayName string
	Caps        []string
	Commands    []string
	Permissions map[string]bool
	Auth        map[string]string
	Params      map[string]any // replaces parameters; a nil value removes one
	Device      map[string]any // replaces members of device
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Frame returns the frame, signed.
func (c Connect) Frame() []byte {
	at := c.At
	if at.IsZero() {
		at = time.Now()
	}
	role, client, platform := or(c.Role, "node"), or(c.ClientID, "node-host"), or(c.Platform, "linux")
	token := ""
	for _, name := range []string{"bootstrapToken", "deviceToken", "token"} {
		token = or(c.Auth[name], token)
	}
	version := or(c.Payload, "v3")
	payload := fmt.Sprintf("%s|%s|%s|node|%s||%d|%s|%s",
		version, c.Key.ID, client, role, at.UnixMilli(), token, c.Nonce)
	if version == "v3" {
		payload += strings.ToLower("|" + strings.TrimSpace(platform) + "|" + strings.TrimSpace(c.Family))
	}
	device := map[string]any{
		"id": c.Key.ID, "publicKey": base64.RawURLEncoding.EncodeToString(c.Key.Public),
		"signature": base64.RawURLEncoding.EncodeToString(ed25519.Sign(c.Key.private, []byte(payload))),
		"signedAt":  at.UnixMilli(), "nonce": c.Nonce,
	}
	program := map[string]any{"id": client, "version": "2026.9.6", "platform": platform, "mode": "node"}
	for name, text := range map[string]string{"deviceFamily": c.Family, "displayName": c.DisplayName} {
		if text != "" {
			program[name] = text
		}
	}
	params := map[string]any{
		"minProtocol": or(c.Min, 4), "maxProtocol": or(c.Max, 4), "client": program, "role": role, "scopes": []string{},
		"device": device, "auth": c.Auth,
	}
	if c.Commands != nil {
		params["commands"] = c.Commands
	}
	if c.Caps != nil {
		params["caps"] = c.Caps
	}
	if c.Permissions != nil {
		params["permissions"] = c.Permissions
	}
	replace(device, c.Device)
	replace(params, c.Params)
	frame, err := json.Marshal(map[string]any{"type": "req", "id": "1:connect", "method": "connect", "params": params})
	if err != nil {
		panic(err)
	}
	return frame
}

func replace(object, with map[string]any) {
	for name, v := range with {
		if v == nil {
			delete(object, name)
		} else {
			object[name] = v
		}
	}
}

// Schema is the published schema of the protocol.
type Schema map[string]*jsonschema.Schema

// ReadSchema reads the schema from a file, which is gateway-protocol.json of ws/node/testdata/schema.
func ReadSchema(file string) (Schema, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("(?!.*--)"), nil) // Go has no lookahead; only nodes send such names
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:protocol", doc); err != nil {
		return nil, err
	}
	all := make(Schema)
	root, _ := doc.(map[string]any)
	definitions, _ := root["definitions"].(map[string]any)
	for name := range definitions {
		if all[name], err = c.Compile("mem:protocol#/definitions/" + name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// events are the definitions of the payloads of events. The schema has none for the others.
var events = map[string]string{
	"node.invoke.request": "NodeInvokeRequestEvent", "tick": "TickEvent", "shutdown": "ShutdownEvent",
}

// Check reports what is wrong with a frame of the gateway.
func (all Schema) Check(frame []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(frame))
	if err != nil {
		return err
	}
	object, _ := doc.(map[string]any)
	switch object["type"] {
	case "res":
		if err := all["ResponseFrame"].Validate(doc); err != nil {
			return err
		}
		payload, _ := object["payload"].(map[string]any)
		switch {
		case payload["type"] == "hello-ok":
			return all["HelloOk"].Validate(payload)
		case payload["handled"] != nil:
			return all["NodeEventResult"].Validate(payload)
		case payload["hasMore"] != nil:
			return all["NodePendingDrainResult"].Validate(payload)
		}
		return nil
	case "event":
		if err := all["EventFrame"].Validate(doc); err != nil {
			return err
		}
		if definition := events[fmt.Sprint(object["event"])]; definition != "" {
			return all[definition].Validate(object["payload"])
		}
		return nil
	}
	return fmt.Errorf("the gateway sends no frame of type %v", object["type"])
}
