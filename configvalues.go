package farhand

import (
	"errors"

	"github.com/dustin/go-humanize"

	"github.com/farhand/farhand/internal/secret"
)

// Secret is a setting that is never printed: as a string, in JSON and in logs it is Masked. A conversion to string
// reveals it.
type Secret = secret.Text

// Masked is what is shown instead of a secret.
const Masked = secret.Masked

// ByteSize is a number of bytes, read with or without a unit: 1048576, 1MiB, 1MB.
type ByteSize int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *ByteSize) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n > 1<<40 {
		return errors.New("must be a size like 1048576, 1MiB or 512KB")
	}
	*b = ByteSize(n)
	return nil
}
