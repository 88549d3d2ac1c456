package farhand

import (
	"errors"
	"log/slog"

	"github.com/dustin/go-humanize"
)

// Secret is a value that never shows itself.
type Secret string

// Masked is what is shown instead of a secret.
const Masked = "********"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Masked
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

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
