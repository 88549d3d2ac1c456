package bytesize_test

import (
	"math"
	"testing"

	"github.com/farhand/farhand/internal/bytesize"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1048576": 1 << 20, "1,048,576": 1 << 20, "1MiB": 1 << 20, "1 MiB": 1 << 20, "1mib": 1 << 20,
		"1MB": 1e6, "1m": 1e6, "1mi": 1 << 20, "512KB": 512_000, "1.5k": 1500, "2 TiB": 2 << 40, "7B": 7, "1eb": 1e18,
	} {
		if got, err := bytesize.Parse(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "MiB", "-1", "1 megabyte", "1bb", "1ib", "1i", "1km", "1..2", "16eib", "1e9", "NaN", "Inf", "1 b b",
	} {
		if got, err := bytesize.Parse(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 9: "9 B", 10: "10 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 10 << 10: "10 KiB",
		10<<10 - 1: "10 KiB", 82854982: "79 MiB", 1<<20 - 1: "1.0 MiB", 64 << 20: "64 MiB", math.MaxUint64: "16 EiB",
	} {
		if got := bytesize.Format(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1MiB")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := bytesize.Parse(text); err == nil && bytesize.Format(n) == "" {
			t.Error("a size without a text")
		}
	})
}
