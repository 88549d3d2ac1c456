package api

import (
	"encoding/json"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// revokeTimeout bounds a revocation, which may have to remove all credentials of a user.
const revokeTimeout = 20 * time.Second

// maxRoles is how many roles a key may be asked to have. There are fewer.
const maxRoles = 16

// parseKeyRequest reads the body that asks for an API key.
func parseKeyRequest(body []byte) (r auth.KeyRequest, err error) {
	texts := map[string]*string{
		"name": &r.Name, "user_id": &r.User, "device_id": &r.Device, "tools": &r.Tools, "context": &r.Context,
		"tenant": &r.Tenant,
	}
	fields, err := readBodyObject(body, "name", "roles", "user_id", "device_id", "tools", "context", "tenant",
		"person", "expires_at", "expires_in")
	if err != nil {
		return r, err
	}
	for name, field := range texts {
		if text, ok := fields.get(name); ok {
			if *field, err = readString(text, name); err != nil {
				return r, err
			}
		}
	}
	if text, ok := fields.get("roles"); ok {
		if json.Unmarshal(text, &r.Roles) != nil || len(r.Roles) > maxRoles {
			return r, wrongType("roles", "a short list of names")
		}
	}
	if text, ok := fields.get("person"); ok && json.Unmarshal(text, &r.Person) != nil {
		return r, wrongType("person", "true or false")
	}
	r.Expires, err = readExpiry(fields)
	return r, err
}

// readExpiry reads when a key ends: at a time, or after so many seconds. The zero time is never.
func readExpiry(fields memberList) (time.Time, error) {
	at, hasTime := fields.get("expires_at")
	in, hasSeconds := fields.get("expires_in")
	switch {
	case hasTime && hasSeconds:
		return time.Time{}, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"expires_at\" and \"expires_in\" exclude one another.")
	case hasTime:
		text, err := readString(at, "expires_at")
		if err != nil {
			return time.Time{}, err
		}
		end, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return time.Time{}, wrongType("expires_at", "a time such as 2030-01-31T12:00:00Z")
		}
		return end, nil
	case hasSeconds:
		var seconds int64
		if json.Unmarshal(in, &seconds) != nil || seconds <= 0 || seconds > int64(100*365*24*time.Hour/time.Second) {
			return time.Time{}, wrongType("expires_in", "a number of seconds")
		}
		return time.Now().Add(time.Duration(seconds) * time.Second), nil
	}
	return time.Time{}, nil
}

// parseRevocation reads the body that revokes something: exactly one of its fields is there.
func parseRevocation(body []byte) (kind registry.ChangeKind, id string, err error) {
	kinds := []struct {
		field string
		kind  registry.ChangeKind
	}{
		{"user_id", registry.ChangeUser}, {"device_id", registry.ChangeDevice},
		{"credential", registry.ChangeCredential}, {"jti", registry.ChangeJWT},
	}
	fields, err := readBodyObject(body, "user_id", "device_id", "credential", "jti")
	if err != nil {
		return "", "", err
	}
	for _, k := range kinds {
		text, ok := fields.get(k.field)
		if !ok {
			continue
		}
		if kind != "" {
			return "", "", registry.Errorf(registry.CodeInvalidRequest, "Revoke one thing at a time.")
		}
		if id, err = readString(text, k.field); err != nil {
			return "", "", err
		}
		kind = k.kind
	}
	if kind == "" || id == "" {
		return "", "", registry.Errorf(registry.CodeInvalidRequest,
			"Name what to revoke: user_id, device_id, credential or jti.")
	}
	return kind, id, nil
}
