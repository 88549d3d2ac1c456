package jwt

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
)

// reason is why a token is refused. It is for the log, and never has a part of the token in it.
type reason string

// Error implements error.
func (r reason) Error() string { return string(r) }

// header is what matters of the first part of a token.
type header struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	Typ string `json:"typ"`
}

// forbidden are the members of a header that bring a key along, change what is signed, or must be understood. A token
// that has one is not for this gateway, or an attack.
var forbidden = []string{"jwk", "jku", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty"}

// Looks reports whether a token has the form of a JWT: three parts with dots between them.
func Looks(token string) bool { return strings.Count(token, ".") == 2 }

// open takes a token apart, and refuses what two parsers could read differently: names that are there twice, padding,
// deep nesting. Nothing is verified yet.
func open(token string) (h header, claims map[string]any, err error) {
	if len(token) > maxToken {
		return h, nil, reason("the token is longer than 8 KiB")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return h, nil, reason("the token has not three parts")
	}
	first, err := part(parts[0])
	if err != nil {
		return h, nil, err
	}
	members := make(map[string]json.RawMessage)
	if json.Unmarshal(first, &members) != nil || json.Unmarshal(first, &h) != nil {
		return h, nil, reason("the header of the token is no object, or alg, kid or typ is no text")
	}
	for name := range members {
		switch name {
		case "alg", "kid", "typ":
			continue
		}
		for _, f := range append(forbidden, "alg", "kid", "typ") { // encoding/json takes any case for the last three
			if strings.EqualFold(name, f) {
				return h, nil, reason("the header of the token has " + f + " where it must not")
			}
		}
	}
	if t := strings.TrimPrefix(strings.ToLower(h.Typ), "application/"); t != "" && t != "jwt" && t != "at+jwt" {
		return h, nil, reason("the token is of another type than JWT")
	}
	second, err := part(parts[1])
	if err != nil {
		return h, nil, err
	}
	if json.Unmarshal(second, &claims) != nil || claims == nil {
		return h, nil, reason("the claims of the token are no object")
	}
	return h, claims, nil
}

var strictBase64 = base64.RawURLEncoding.Strict()

// part decodes one part of a token that is JSON.
func part(text string) ([]byte, error) {
	b, err := strictBase64.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, reason("a part of the token is not base64url without padding")
	}
	switch strictjson.Check(b, maxDepth).Fault {
	case 0:
		return b, nil
	case strictjson.TooDeep:
		return nil, reason("the token nests too deep")
	case strictjson.NameTwice:
		return nil, reason("the token has a name twice in one object")
	default:
		return nil, reason("a part of the token is not JSON")
	}
}
