// Package secret has the type of everything in a configuration that nobody may read in a log, an error or an answer.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Text is a secret. However it is printed, marshalled or logged, it is Masked; only a conversion to string reveals it.
// It must not stand in a field that is not exported: package fmt prints those without asking their types.
type Text string

// Masked is what is shown instead of a secret that is not empty.
const Masked = "********"

// String implements fmt.Stringer.
func (t Text) String() string {
	if t == "" {
		return ""
	}
	return Masked
}

// GoString implements fmt.GoStringer.
func (t Text) GoString() string { return t.String() }

// Format implements fmt.Formatter: verbs that do not fit a text would print the value else.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText implements encoding.TextMarshaler, for JSON too.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }
