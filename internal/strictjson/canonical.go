package strictjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest identifies a JSON value by its canonical form: object keys sorted, no insignificant space.
func Digest(parts ...json.RawMessage) (string, error) {
	h := sha256.New()
	for _, p := range parts {
		canonical, err := Canonical(p)
		if err != nil {
			return "", err
		}
		h.Write(canonical)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Canonical rewrites JSON with sorted keys and no space. Numbers keep their text.
func Canonical(text json.RawMessage) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
