// Package secret has the type for configuration values that must not appear in logs, errors or answers.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Text is a secret. Printing, marshalling or logging it yields Masked; only a conversion to string reveals it. Do not
// use it in an unexported field: package fmt prints those without calling their methods.
type Text string

// Masked is shown instead of a secret that is not empty.
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

// Format implements fmt.Formatter. Without it, verbs that do not fit a text would print the value.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText implements encoding.TextMarshaler, also for JSON.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }
