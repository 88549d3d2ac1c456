package jwt

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// latest is the end of the times that a token may have: the year 2242. Later times could overflow sums.
const latest = 1 << 33

// identity reads the identity from verified claims. An unreadable claim is an error: it may be a restriction.
func (v *Verifier) identity(claims map[string]any) (auth.Identity, error) {
	names := &v.cfg.Claims
	id := auth.Identity{Tenant: registry.DefaultTenant}
	for _, name := range []string{names.Tools, names.Device, names.Context} {
		if value, there := lookup(claims, name); there && (value == nil || value == "") {
			return id, reason("the claim " + name + " is empty; omit it for no restriction")
		}
	}
	if err := cmp.Or(readText(claims, names.Tenant, &id.Tenant), readText(claims, names.User, &id.User),
		readText(claims, names.Device, &id.Device), readText(claims, names.Context, &id.Context)); err != nil {
		return id, err
	}
	if id.User == "" {
		return id, reason("the claim " + names.User + " with the user is missing")
	}
	roles, _, err := readList(claims, names.Roles)
	if err != nil {
		return id, err
	}
	for _, role := range roles {
		var one auth.Identity
		switch {
		case role == names.Operator && id.Tenant == registry.DefaultTenant:
			id.Roles |= auth.RoleOperator
		case role == auth.NameOperator || role == names.Operator: // a provider may use the name for its own ends
		case one.SetRoles(role) == nil: // other names are roles of other services
			id.Admin, id.Roles = id.Admin || one.Admin, id.Roles|one.Roles
		}
	}
	tools, restricted, err := readList(claims, names.Tools)
	if err != nil {
		return id, err
	}
	if id.Tools = strings.Join(tools, " "); restricted && id.Tools == "" {
		return id, reason("the claim " + names.Tools + " lists no tools")
	}
	return id, v.describe(&id, claims)
}

// describe sets the credential and lifetime of an identity, and checks the identity.
func (v *Verifier) describe(id *auth.Identity, claims map[string]any) error {
	issued, hasIssued := claims["iat"].(float64)
	expires, _ := claims["exp"].(float64) // required by the signature check
	if hasIssued {
		id.Issued = time.Unix(int64(issued), 0)
	}
	id.Expires = time.Unix(int64(math.Ceil(expires)), 0).Add(v.cfg.Leeway)
	jti := ""
	if err := readText(claims, "jti", &jti); err != nil {
		return err
	}
	if jti == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %v %v", id.Tenant, id.User, claims["iat"], claims["exp"]))
		jti = base64.RawURLEncoding.EncodeToString(sum[:16])
	}
	id.Credential = auth.CredentialJWT + ":" + jti
	key := registry.Key{Tenant: id.Tenant, Session: "any"}
	if key.Validate() != nil {
		return reason("the claim " + v.cfg.Claims.Tenant + " is not a valid tenant name")
	}
	s := registry.Session{Key: key, UserID: id.User, DeviceID: id.Device, Name: jti}
	if s.ValidateAttributes() != nil {
		return reason("a user, device or jti in the token is too long or has invisible characters")
	}
	if !auth.IsContext(id.Context) {
		return reason("the claim " + v.cfg.Claims.Context + " is not a valid context")
	}
	return nil
}

// checkLifetime rejects times that are not plain numbers, and lifetimes above the maximum. It needs no signature.
func (v *Verifier) checkLifetime(claims map[string]any) error {
	at := make(map[string]float64)
	for _, name := range []string{"exp", "iat", "nbf"} {
		value, there := claims[name]
		if !there {
			continue
		}
		seconds, ok := value.(float64)
		if !ok || !(seconds >= 0 && seconds < latest) {
			return reason("the claim " + name + " is not a time")
		}
		at[name] = seconds
	}
	longest := (v.cfg.MaxAge + v.cfg.Leeway).Seconds()
	from := float64(v.cfg.Now().Unix())
	if issued, ok := at["iat"]; ok {
		from = min(from, issued)
	}
	if at["exp"]-from > longest {
		return reason("the token's lifetime exceeds FARHAND_JWT_MAX_AGE")
	}
	return nil
}

// checkValid checks that a token is valid now, within the leeway, and is from the issuer.
func (v *Verifier) checkValid(claims map[string]any) error {
	now := v.cfg.Now()
	// at returns the time of a claim, which checkLifetime has checked, in whole seconds, moved by the leeway.
	at := func(name string, leeway time.Duration) (t time.Time, there bool) {
		seconds, _ := claims[name].(float64)
		return time.Unix(int64(seconds), 0).Add(leeway), seconds != 0
	}
	expires, limited := at("exp", v.cfg.Leeway)
	begins, _ := at("nbf", -v.cfg.Leeway)
	issued, _ := at("iat", -v.cfg.Leeway)
	issuer, isText := claims["iss"].(string)
	switch {
	case limited && !now.Before(expires):
		return reason("token is expired")
	case now.Before(begins):
		return reason("token is not valid yet")
	case now.Before(issued):
		return reason("token used before issued")
	case claims["iss"] != nil && !isText:
		return reason("the token's claims are not valid")
	case v.cfg.Issuer != "" && issuer != "" && issuer != v.cfg.Issuer:
		return reason("token has invalid issuer")
	case !limited, v.cfg.Issuer != "" && issuer == "":
		return reason("token is missing required claim")
	default:
		return nil
	}
}

// lookup returns a claim by its name or by its path with dots, and whether it exists. It may be null.
func lookup(claims map[string]any, name string) (any, bool) {
	for {
		if value, ok := claims[name]; ok {
			return value, true
		}
		first, rest, ok := strings.Cut(name, ".")
		if !ok {
			return nil, false
		}
		if claims, ok = claims[first].(map[string]any); !ok {
			return nil, false
		}
		name = rest
	}
}

// readText reads a claim that must be a text if it exists.
func readText(claims map[string]any, name string, field *string) error {
	value, ok := lookup(claims, name)
	if !ok || value == nil {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return reason("the claim " + name + " is not a string")
	}
	*field = text
	return nil
}

// readAudiences reads the claim aud: a text, or a list of texts. A token without it is for none.
func readAudiences(value any) (list []string, err error) {
	if text, ok := value.(string); ok {
		return []string{text}, nil
	}
	all, ok := value.([]any)
	for _, item := range all {
		text, isText := item.(string)
		ok = ok && isText
		list = append(list, text)
	}
	if !ok && value != nil {
		return nil, reason("the claim aud is neither a string nor a list of strings")
	}
	return list, nil
}

// readList reads a claim that is a list of texts, or a text with parts separated by spaces.
func readList(claims map[string]any, name string) (list []string, there bool, err error) {
	value, ok := lookup(claims, name)
	if !ok || value == nil {
		return nil, false, nil
	}
	if text, ok := value.(string); ok {
		return strings.Fields(text), true, nil
	}
	all, ok := value.([]any)
	for _, item := range all {
		text, _ := item.(string)
		ok = ok && len(strings.Fields(text)) == 1
		list = append(list, text)
	}
	if !ok {
		return nil, true, reason("the claim " + name + " is not a list of words")
	}
	return list, true, nil
}

// reason is why a token is rejected. It is for the log, and never has any part of the token.
type reason string

func (r reason) Error() string { return string(r) }

type header struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	Typ string `json:"typ"`
}

// forbidden are the header members that supply a key, change what is signed, or must be understood.
var forbidden = []string{"jwk", "jku", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty"}

// IsToken reports whether a token has the form of a JWT: three parts separated by dots.
func IsToken(token string) bool { return strings.Count(token, ".") == 2 }

// open parses a token. It rejects what two parsers could read differently: duplicate names, padding, deep nesting.
func open(token string) (h header, claims map[string]any, err error) {
	if len(token) > maxToken {
		return h, nil, reason("the token is longer than 8 KiB")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return h, nil, reason("the token does not have three parts")
	}
	first, err := part(parts[0])
	if err != nil {
		return h, nil, err
	}
	members := make(map[string]json.RawMessage)
	if json.Unmarshal(first, &members) != nil || json.Unmarshal(first, &h) != nil {
		return h, nil, reason("the token's header is not an object, or its alg, kid or typ is not a string")
	}
	for name := range members {
		switch name {
		case "alg", "kid", "typ":
			continue
		}
		for _, f := range append(forbidden, "alg", "kid", "typ") { // encoding/json matches the last three in any case
			if strings.EqualFold(name, f) {
				return h, nil, reason("the token's header has the invalid member " + f)
			}
		}
	}
	if t := strings.TrimPrefix(strings.ToLower(h.Typ), "application/"); t != "" && t != "jwt" && t != "at+jwt" {
		return h, nil, reason("the token's type is not JWT")
	}
	second, err := part(parts[1])
	if err != nil {
		return h, nil, err
	}
	if json.Unmarshal(second, &claims) != nil || claims == nil {
		return h, nil, reason("the token's claims are not an object")
	}
	_, err = decode(parts[2])
	return h, claims, err
}

var strictBase64 = base64.RawURLEncoding.Strict()

// decode decodes one part of a token. Only one text stands for the same bytes.
func decode(text string) ([]byte, error) {
	b, err := strictBase64.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, reason("a part of the token is not base64url without padding")
	}
	return b, nil
}

// part decodes the header or the claims, which must be JSON.
func part(text string) ([]byte, error) {
	b, err := decode(text)
	if err != nil {
		return nil, err
	}
	switch strictjson.Check(b, maxDepth).Fault {
	case 0:
		return b, nil
	case strictjson.TooDeep:
		return nil, reason("the token is nested too deeply")
	case strictjson.NameTwice:
		return nil, reason("the token has a duplicate name in an object")
	default:
		return nil, reason("a part of the token is not valid JSON")
	}
}
