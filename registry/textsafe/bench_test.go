package textsafe_test

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/registry/textsafe"
)

func BenchmarkSkeletons(b *testing.B) {
	for b.Loop() {
		textsafe.Skeletons("get_current_location")
	}
}

func BenchmarkClean(b *testing.B) {
	said := strings.Repeat("Погода сегодня: 21 °C\u200b\n", 1000)
	b.SetBytes(int64(len(said)))
	for b.Loop() {
		textsafe.Clean(said)
	}
}
