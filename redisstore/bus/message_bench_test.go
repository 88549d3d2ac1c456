package bus

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// benchSizes are payloads as they are called in the names of benchmarks.
var benchSizes = []struct {
	name string
	n    int
}{{"100B", 100}, {"10KB", 10_000}, {"1MB", 1_000_000}}

func benchEnvelope(n int) registry.Envelope {
	return registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, Tenant: "default", Session: "phone-1",
		Generation: 1_790_000_000_000_000, CallID: "8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", Tool: "echo",
		Args: registry.MustJSON(`{"text":"` + strings.Repeat("x", n) + `"}`), TimeoutMS: 30_000,
		ReplyTo: "host-8b0f6a52",
	}
}

func benchReply(n int) registry.Reply {
	return registry.Reply{
		V: registry.EnvelopeVersion, CallID: "8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11",
		Result: &registry.Result{Success: true, Output: strings.Repeat("x", n)},
	}
}

// BenchmarkCodec encodes and decodes the envelope of a call to another pod and the reply on the way back. Codec.go has
// the figures.
func BenchmarkCodec(b *testing.B) {
	for _, s := range benchSizes {
		e, r := benchEnvelope(s.n), benchReply(s.n)
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(2 * s.n))
			for b.Loop() {
				call, _ := encodeEnvelope(e)
				if _, err := decodeMessage(string(call)); err != nil {
					b.Fatal(err)
				}
				answer, _ := encodeReply(r)
				if _, err := decodeMessage(string(answer)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEnvelopeEncode and BenchmarkEnvelopeDecode are a call on its way to another pod.
func BenchmarkEnvelopeEncode(b *testing.B) {
	for _, s := range benchSizes {
		e := benchEnvelope(s.n)
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(s.n))
			for b.Loop() {
				if _, err := encodeEnvelope(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEnvelopeDecode(b *testing.B) {
	for _, s := range benchSizes {
		text, err := encodeEnvelope(benchEnvelope(s.n))
		if err != nil {
			b.Fatal(err)
		}
		benchDecode(b, s.name, string(text), s.n)
	}
}

// BenchmarkReplyEncode and BenchmarkReplyDecode are its answer on the way back.
func BenchmarkReplyEncode(b *testing.B) {
	for _, s := range benchSizes {
		r := benchReply(s.n)
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(s.n))
			for b.Loop() {
				if _, err := encodeReply(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReplyDecode(b *testing.B) {
	for _, s := range benchSizes {
		text, err := encodeReply(benchReply(s.n))
		if err != nil {
			b.Fatal(err)
		}
		benchDecode(b, s.name, string(text), s.n)
	}
}

func benchDecode(b *testing.B, name, text string, n int) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(n))
		for b.Loop() {
			if _, err := decodeMessage(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
