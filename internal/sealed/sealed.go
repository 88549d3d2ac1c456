// Package sealed encrypts a file with a passphrase, in the format of age (https://age-encryption.org), and compresses
// it. So `age -d FILE | gunzip` reads it too. Each 64 KiB are authenticated, and so is the end: a file that was cut or
// changed is not read to its end without an error.
//
// Imports: none of the packages of this module.
package sealed

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// workFactor is the base-2 logarithm of scrypt's work: opening takes a fifth of a second and 64 MiB of memory. Files
// that ask for more than maxWorkFactor, the default of age, are refused.
const (
	workFactor    = 16
	maxWorkFactor = 18
)

// MinPassphrase is the minimum length of a passphrase in bytes.
const MinPassphrase = 16

// Writer returns a writer that seals what is written to it. Its Close writes the end, and does not close w.
func Writer(w io.Writer, passphrase string) (io.WriteCloser, error) {
	return newWriter(w, passphrase, workFactor)
}

func newWriter(w io.Writer, passphrase string, work int) (io.WriteCloser, error) {
	if len(passphrase) < MinPassphrase {
		return nil, fmt.Errorf("the passphrase is shorter than %d bytes: make one with `openssl rand -base64 32`",
			MinPassphrase)
	}
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	recipient.SetWorkFactor(work)
	encrypted, err := age.Encrypt(w, recipient)
	if err != nil {
		return nil, err
	}
	return &writer{gzip.NewWriter(encrypted), encrypted}, nil
}

type writer struct {
	*gzip.Writer
	encrypted io.Closer
}

func (w *writer) Close() error { return errors.Join(w.Writer.Close(), w.encrypted.Close()) }

// ErrPassphrase is the error for a file that another passphrase has sealed.
var ErrPassphrase = errors.New("the passphrase is not that of this file")

// Reader returns what Writer sealed. An error while it is read, other than io.EOF, means that the file is not whole.
func Reader(r io.Reader, passphrase string) (io.Reader, error) {
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	identity.SetMaxWorkFactor(maxWorkFactor)
	decrypted, err := age.Decrypt(r, identity)
	if wrong := (*age.NoIdentityMatchError)(nil); errors.As(err, &wrong) {
		return nil, ErrPassphrase
	}
	if err != nil {
		return nil, fmt.Errorf("this file was not made by farhand export: %w", err)
	}
	return gzip.NewReader(decrypted)
}
