package client

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Credential is what a paired device keeps: whoever has it is the device.
type Credential struct {
	Token    string             // the bearer token
	DeviceID string             // that the token is bound to
	Key      ed25519.PrivateKey // signs connections; empty: the token alone is enough
}

// Store keeps a device's credential between runs. Its methods are called by one goroutine at a time.
type Store interface {
	// Load returns the credential, or one with an empty Token if there is none.
	Load(ctx context.Context) (Credential, error)
	// Save keeps a credential in place of the one before.
	Save(ctx context.Context, c Credential) error
}

// FileStore is a Store in a file that only its user can read.
type FileStore string

// storedCredential is the content of the file.
type storedCredential struct {
	Token    string `json:"token"`
	DeviceID string `json:"device_id"`
	Key      string `json:"private_key,omitempty"` // the seed, in base64url
}

// Load implements Store. A file that others may read is an error.
func (f FileStore) Load(context.Context) (Credential, error) {
	info, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return Credential{}, nil
	}
	if err != nil {
		return Credential{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Credential{}, fmt.Errorf("client: others may read %s, so it is no secret: pair the device again, "+
			"after removing the file", string(f))
	}
	text, err := os.ReadFile(string(f))
	if err != nil {
		return Credential{}, err
	}
	var s storedCredential
	if err := json.Unmarshal(text, &s); err != nil || s.Token == "" {
		return Credential{}, fmt.Errorf("client: %s does not hold the credential of a device", string(f))
	}
	c := Credential{Token: s.Token, DeviceID: s.DeviceID}
	if s.Key != "" {
		seed, err := base64.RawURLEncoding.DecodeString(s.Key)
		if err != nil || len(seed) != ed25519.SeedSize {
			return Credential{}, fmt.Errorf("client: the key in %s is damaged", string(f))
		}
		c.Key = ed25519.NewKeyFromSeed(seed)
	}
	return c, nil
}

// Save implements Store. The file is replaced in one step, so that a crash leaves the old or the new one.
func (f FileStore) Save(_ context.Context, c Credential) error {
	s := storedCredential{Token: c.Token, DeviceID: c.DeviceID}
	if len(c.Key) == ed25519.PrivateKeySize {
		s.Key = base64.RawURLEncoding.EncodeToString(c.Key.Seed())
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(string(f)), ".credential-*") // only its user can read it
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // unless it was renamed
	_, err = temporary.Write(text)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), string(f))
}
