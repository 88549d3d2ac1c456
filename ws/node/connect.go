package node

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Bounds of what a node says about itself. Together they are far below MaxConnect.
const (
	maxList = 512 // commands, caps, or permissions
	maxName = 256 // bytes of a name, such as that of a command
)

// clientIDs are the programs that the protocol knows. Programs of others must name one of them.
var clientIDs = []string{
	"webchat-ui", "openclaw-control-ui", "openclaw-browser-copilot", "openclaw-tui", "webchat", "cli", "gateway-client",
	"openclaw-macos", "openclaw-linux", "openclaw-ios", "openclaw-watchos", "openclaw-android", "node-host",
	"openclaw-worker", "test", "fingerprint", "openclaw-probe",
}

// connect is the frame connect.
type connect struct {
	id                       string // of the request
	minProtocol, maxProtocol int64
	client                   client
	role                     string
	scopes                   []string
	caps, commands           []string
	permissions              map[string]bool
	device                   *device // nil: the frame names none
	auth                     authentication
}

type client struct {
	id, displayName, version, platform, deviceFamily, modelIdentifier, mode string
}

// device proves that the node has a key.
type device struct {
	id, publicKey, signature, nonce string
	signedAt                        int64 // Unix time in milliseconds
}

// authentication is what a node presents. signed is the one that its signature covers.
type authentication struct {
	token, deviceToken, bootstrapToken, password string
	signed                                       string
}

// parseConnect decodes the first frame. With an error, the id is set if the frame has a valid one.
func parseConnect(frame []byte) (c *connect, bad *fields.Error) {
	c = &connect{id: identifierOfNoFrame}
	var buffer [fields.Few]strictjson.Member
	members, err := fields.Message(buffer[:0], frame)
	if err != nil {
		return c, fields.Invalid("invalid request frame: %s", err.Error())
	}
	f := fields.New(members, &bad)
	typ, id, method := f.TextOr("type", ""), f.TextOr("id", ""), f.TextOr("method", "")
	if id != "" && len(id) <= maxEcho {
		c.id = strings.Clone(id)
	}
	if typ != "req" || c.id != id || method == "" {
		return c, fields.Invalid("invalid request frame")
	}
	if method != methodConnect {
		return c, fields.Invalid("invalid handshake: first request must be connect")
	}
	params, mistake := f.Inner("params", "is required")
	if mistake != "" {
		return c, fields.Invalid("invalid connect params: %s", mistake)
	}
	c.read(params, &f)
	if bad != nil {
		bad = fields.Invalid("invalid connect params: %s", bad.Message)
	}
	return c, bad
}

// read reads the parameters. Mistakes are those of f.
func (c *connect) read(params, f *fields.Object) {
	c.minProtocol, c.maxProtocol = whole(params, "minProtocol"), whole(params, "maxProtocol")
	inner, mistake := params.Inner("client", "is required")
	if mistake != "" {
		f.Fail("client", mistake)
		return
	}
	c.client = client{
		id: inner.Text("id"), displayName: inner.TextOr("displayName", ""), version: inner.Text("version"),
		platform: inner.Text("platform"), deviceFamily: inner.TextOr("deviceFamily", ""),
		modelIdentifier: inner.TextOr("modelIdentifier", ""), mode: inner.Text("mode"),
	}
	if !slices.Contains(clientIDs, c.client.id) {
		f.Fail("client.id", "is not one of the protocol's")
	}
	c.role = params.TextOr("role", "operator")
	c.scopes = params.OptionalTexts("scopes")
	c.caps, c.commands = names(params, "caps"), names(params, "commands")
	c.permissions = grants(params, f)
	c.readDevice(params, f)
	c.readAuth(params, f)
}

func (c *connect) readDevice(params, f *fields.Object) {
	if params.Value("device") == nil {
		return
	}
	inner, mistake := params.Inner("device", "is required")
	if mistake != "" {
		f.Fail("device", mistake)
		return
	}
	c.device = &device{
		id: inner.Text("id"), publicKey: inner.Text("publicKey"), signature: inner.Text("signature"),
		nonce: inner.TextOr("nonce", ""), signedAt: whole(inner, "signedAt"),
	}
}

// readAuth reads what the node presents. The signature covers the first that is there, of token, device token and
// bootstrap token, as it was sent.
func (c *connect) readAuth(params, f *fields.Object) {
	if params.Value("auth") == nil {
		return
	}
	inner, mistake := params.Inner("auth", "is required")
	if mistake != "" {
		f.Fail("auth", mistake)
		return
	}
	a := authentication{password: inner.TextOr("password", "")}
	for i, key := range []string{"bootstrapToken", "deviceToken", "token"} {
		text := inner.OptionalText(key)
		if text == nil {
			continue
		}
		a.signed = strings.Clone(*text)
		*[]*string{&a.bootstrapToken, &a.deviceToken, &a.token}[i] = strings.TrimSpace(a.signed)
	}
	c.auth = a
}

// whole returns a whole number that must be there.
func whole(o *fields.Object, key string) int64 {
	o.Required(key)
	if n := o.OptionalInt(key); n != nil {
		return *n
	}
	return 0
}

// names returns a list of short names, which do not refer to the frame.
func names(o *fields.Object, key string) []string {
	list := o.OptionalTexts(key)
	if len(list) > maxList {
		o.Fail(key, "has too many elements")
		return nil
	}
	for i, name := range list {
		if name == "" || len(name) > maxName {
			o.Fail(key, "has an element that is empty or too long")
			return nil
		}
		list[i] = strings.Clone(name)
	}
	return list
}

func grants(params, f *fields.Object) map[string]bool {
	object := params.Value("permissions")
	if object == nil {
		return nil
	}
	members, reason, ok := fields.SplitMap(nil, object)
	if !ok || len(members) > maxList {
		f.Fail("permissions", "must be an object with few members "+reason)
		return nil
	}
	granted := make(map[string]bool, len(members))
	for _, m := range members {
		var yes bool
		if len(m.Name) > maxName || json.Unmarshal(m.Value, &yes) != nil {
			f.Fail("permissions", "must have short names and true or false")
			return nil
		}
		granted[string(m.Name)] = yes
	}
	return granted
}

// key returns the public key of a device, and the id that it must have. ok is false if the key is invalid.
func (d *device) key() (public ed25519.PublicKey, id string, ok bool) {
	public, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(d.publicKey, "="))
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, "", false
	}
	sum := sha256.Sum256(public)
	return public, hex.EncodeToString(sum[:]), true
}

// signs reports whether the device has signed the connect frame, as version 3 of the payload or as version 2. Both are
// OpenClaw's: its clients sign the third, and older ones the second, which has no platform.
func (d *device) signs(public ed25519.PublicKey, c *connect) bool {
	signature, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(d.signature, "="))
	if err != nil || len(signature) != ed25519.SignatureSize {
		return false
	}
	second := payload("v2", d, c)
	third := payload("v3", d, c) + "|" + lower(c.client.platform) + "|" + lower(c.client.deviceFamily)
	return ed25519.Verify(public, []byte(third), signature) || ed25519.Verify(public, []byte(second), signature)
}

func payload(version string, d *device, c *connect) string {
	return strings.Join([]string{
		version, d.id, c.client.id, c.client.mode, c.role, strings.Join(c.scopes, ","),
		decimal(d.signedAt), c.auth.signed, d.nonce,
	}, "|")
}

// lower is how OpenClaw writes the platform in the payload: without space around it, and only ASCII in lower case.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.TrimSpace(s))
}
