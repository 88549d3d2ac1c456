package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
)

// keySize is the length of a key in bytes.
const keySize = 32

// readKey returns the key in a file. The first who asks makes it; of several who do so at once, on pods that share the
// folder, one does.
func readKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return nil, err
		}
		key, err = os.ReadFile(path)
	}
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s is no key: remove it, and the folders beside it", path)
	}
	return key, err
}

// makeKey makes a key, unless another was faster.
func makeKey(path string) error {
	key := make([]byte, keySize)
	rand.Read(key) // it never fails
	whole := path + "." + rand.Text()
	defer os.Remove(whole)
	if err := os.WriteFile(whole, key, 0o600); err != nil {
		return err
	}
	if err := os.Link(whole, path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
