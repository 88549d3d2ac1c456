package provenance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// hostile are texts that are made to cost as much as possible, of about n bytes.
func hostile(n int) map[string]string {
	list := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	return map[string]string{
		"prose":     strings.Repeat("The quick brown fox jumps over 13 lazy dogs, as Ada wrote on May 3rd. ", n/70),
		"one word":  strings.Repeat("a ", n/2),
		"words":     list("w%d "),
		"numbers":   list("%d "),
		"addresses": list("a%d@b.example "),
		"urls":      list("https://%d.example.com/a?b "),
		"dots":      strings.Repeat("a.", n/2),
		"colons":    strings.Repeat("a://", n/4),
		"at signs":  strings.Repeat("@", n),
		"digits":    strings.Repeat("1234 ", n/5),
		"dates":     strings.Repeat("1 to 2 may 3 to 4 ", n/18),
		"ibans":     strings.Repeat("de12 1234 ", n/10),
		"percent":   strings.Repeat("%41", n/3),
		"base64":    strings.Repeat("QUFB", n/4),
		"fields":    `["` + strings.TrimSuffix(list(`f%d","`), `,"`) + `]`,
		"nested":    strings.Repeat("[", n/2) + strings.Repeat("]", n/2),
		"no JSON":   strings.Repeat(`{"a":`, n/5),
		"chinese":   strings.Repeat("漢字仮名", n/12),
		"accents":   strings.Repeat("e\u0301", n/3),
		"ligature":  strings.Repeat("\ufdfa", n/3),
	}
}

// BenchmarkCall is one call of usual size in a conversation that has been read: what each further call costs.
func BenchmarkCall(b *testing.B) {
	c := said("Mail the summary to bob@example.org by Friday.", hostile(64 << 10)["prose"])
	args := json.RawMessage(`{"to":["bob@example.org"],"subject":"Summary of the page","body":"` +
		strings.Repeat("It says this and that. ", 40) + `","priority":3,"on":"2024-05-03"}`)
	b.ReportAllocs()
	for b.Loop() {
		if f := c.Origins(provenance.Call{Args: args}); !f.Tainted {
			b.Fatal("not tainted")
		}
	}
}

// BenchmarkContext reads 64 KiB of context once, as the first call of a turn does.
func BenchmarkContext(b *testing.B) {
	for _, kind := range []string{"prose", "fields", "chinese"} {
		text := hostile(64 << 10)[kind]
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				said("Hello", text).Origins(provenance.Call{Args: json.RawMessage(`{"v":1}`)})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(text))*1024, "ns/KiB")
		})
	}
}

// BenchmarkHostile is 1 MiB of context and 1 MiB of arguments, both made to cost as much as possible.
func BenchmarkHostile(b *testing.B) {
	texts := hostile(1 << 20)
	for kind, text := range texts {
		args, err := json.Marshal(map[string]string{"v": text})
		if err != nil {
			b.Fatal(err)
		}
		var list []string
		for word := range strings.FieldsSeq(text) {
			if list = append(list, word+" a"); len(list) > 5000 {
				break
			}
		}
		many, _ := json.Marshal(list)
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				c := said(text, text)
				c.Origins(provenance.Call{Args: args})
				c.Origins(provenance.Call{Args: many})
			}
		})
	}
}
