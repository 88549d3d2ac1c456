package farhand

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/farhand/farhand/agent/access/jwt"
)

// JWTConfig is the part of Config that is about tokens of an identity provider. They are accepted once there is a key
// to check them with: FARHAND_JWT_SECRET, FARHAND_JWT_KEY_FILE or FARHAND_JWT_JWKS_URL.
type JWTConfig struct {
	JWTIssuer       string        `env:"JWT_ISSUER" doc:"iss of JSON Web Tokens that are accepted. Required with a key for them."`
	JWTAudience     string        `env:"JWT_AUDIENCE" doc:"aud of JSON Web Tokens that are accepted: a token for another service is refused. Required with a key for them."`
	JWTKeySetURL    string        `env:"JWT_JWKS_URL" doc:"Where the identity provider publishes its keys (JWKS), https: RS256, ES256 and EdDSA."`
	JWTKeyFile      string        `env:"JWT_KEY_FILE" doc:"File with public keys of the issuer, PEM or JWKS; read at start."`
	JWTSecret       Secret        `env:"JWT_SECRET" doc:"Secret of at least 32 bytes that is shared with the issuer, for HS256."`
	JWTLeeway       time.Duration `env:"JWT_LEEWAY" envDefault:"30s" doc:"How far the clocks of issuer and gateway may be apart."`
	JWTMaxAge       time.Duration `env:"JWT_MAX_AGE" envDefault:"24h" doc:"The longest life a JSON Web Token may have; longer ones are refused."`
	JWTTenantClaim  string        `env:"JWT_TENANT_CLAIM" envDefault:"tenant" doc:"Claim with the tenant; a token without it is of the default tenant. Dots lead into objects, here and below."`
	JWTUserClaim    string        `env:"JWT_USER_CLAIM" envDefault:"sub" doc:"Claim with the user; a token without it is refused."`
	JWTRolesClaim   string        `env:"JWT_ROLES_CLAIM" envDefault:"roles" doc:"Claim with the roles (device, caller, approver, admin), a list or a text with spaces. Other roles in it are ignored; without any the token may do nothing."`
	JWTToolsClaim   string        `env:"JWT_TOOLS_CLAIM" envDefault:"tools" doc:"Claim with globs of the tools that may be called and registered, a list or a text with spaces. A token without it is not restricted; one in which it is empty is refused, as with the next two."`
	JWTContextClaim string        `env:"JWT_CONTEXT_CLAIM" envDefault:"context" doc:"Claim that says who takes part in conversations: main, group, or group sandboxed."`
	JWTDeviceClaim  string        `env:"JWT_DEVICE_CLAIM" envDefault:"device_id" doc:"Claim with the only device_id that a device with the token may have."`
}

// acceptsJWT reports whether there is a key to check JSON Web Tokens with.
func (c JWTConfig) acceptsJWT() bool {
	return c.JWTSecret != "" || c.JWTKeyFile != "" || c.JWTKeySetURL != ""
}

// openJWT returns what checks JSON Web Tokens, nil if none are accepted. resource is the URL of the gateway, empty if
// it is not known.
func (c JWTConfig) openJWT(resource string, log *slog.Logger) (*jwt.Verifier, error) {
	if !c.acceptsJWT() {
		return nil, nil
	}
	keys, err := c.keys()
	if err != nil {
		return nil, fmt.Errorf("FARHAND_JWT_KEY_FILE: %w", err)
	}
	return jwt.New(jwt.Config{
		Issuer: c.JWTIssuer, Audience: c.JWTAudience, Resource: resource, Secret: []byte(c.JWTSecret),
		KeyFile: keys, KeySetURL: c.JWTKeySetURL,
		Leeway: c.JWTLeeway, MaxAge: c.JWTMaxAge, Log: log,
		Claims: jwt.ClaimNames{
			Tenant: c.JWTTenantClaim, User: c.JWTUserClaim, Roles: c.JWTRolesClaim, Tools: c.JWTToolsClaim,
			Context: c.JWTContextClaim, Device: c.JWTDeviceClaim,
		},
	})
}

// keys reads the file of keys; nil: there is none.
func (c JWTConfig) keys() ([]byte, error) {
	if c.JWTKeyFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(c.JWTKeyFile)
	if err != nil {
		return nil, err
	}
	return content, jwt.CheckKeys(content)
}

// check reports what is wrong with the settings, as far as they tell by themselves.
func (c JWTConfig) check(wrong func(ok bool, variable, message string), token Secret) {
	if !c.acceptsJWT() {
		const without = "is of no use without a key that tokens are signed with: set FARHAND_JWT_JWKS_URL, " +
			"FARHAND_JWT_KEY_FILE or FARHAND_JWT_SECRET, or remove it"
		wrong(c.JWTIssuer == "", "JWT_ISSUER", without)
		wrong(c.JWTAudience == "", "JWT_AUDIENCE", without)
		return
	}
	wrong(c.JWTIssuer != "", "JWT_ISSUER", "is required to accept tokens")
	wrong(c.JWTAudience != "", "JWT_AUDIENCE", "is required to accept tokens: others may be meant for another service")
	wrong(c.JWTSecret == "" || len(c.JWTSecret) >= 32, "JWT_SECRET", "must have at least 32 bytes")
	wrong(c.JWTMaxAge >= time.Minute, "JWT_MAX_AGE", "must be at least a minute")
	wrong(!jwt.Looks(string(token)), "TOKEN", "must not have two dots beside JSON Web Tokens: it would be read as one")
	if c.JWTKeySetURL != "" {
		err := jwt.CheckURL(c.JWTKeySetURL)
		wrong(err == nil, "JWT_JWKS_URL", fmt.Sprint(err))
	}
}
