package provider_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

// framings are ways to write an event that mean the same.
var framings = map[string]func(string) string{
	"as the vendors do": func(s string) string { return s },
	"carriage returns":  func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
	"no blank":          func(s string) string { return strings.ReplaceAll(s, ": ", ":") },
	"comments": func(s string) string {
		return ": hello\n\n" + strings.ReplaceAll(s, "data:", ":\n: ping\ndata:")
	},
	"several data fields": func(s string) string { return strings.ReplaceAll(s, `,"`, ",\ndata: \"") },
	"fields nobody needs": func(s string) string {
		return strings.ReplaceAll(s, "data:", "id: 7\nretry: 10\nretry\nodd: data: x\ndata:")
	},
	"pings": func(s string) string {
		return strings.ReplaceAll(s, "\n\n", "\n\n"+event("ping", `{"type":"ping"}`))
	},
	"blank lines":        func(s string) string { return "\n\n" + strings.ReplaceAll(s, "\n\n", "\n\n\n\n") },
	"a byte order mark":  func(s string) string { return "\ufeff" + s },
	"old line endings":   func(s string) string { return strings.ReplaceAll(s, "\n", "\r") },
	"mixed line endings": func(s string) string { return strings.ReplaceAll(s, "\n\n", "\n\r\n") },
}

// An answer is the same however its events are framed, and wherever the network cuts them into pieces.
func TestFramingsOfAStream(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		stream := strings.Replace(d.word, "word ", "K\u00f6ln \U0001f389 ", 1) + d.word + d.end
		for name, frame := range framings {
			for _, size := range []int{1, 3, 1 << 20} {
				m := d.model(func(r *http.Request) (*http.Response, error) {
					body := io.NopCloser(pieces{strings.NewReader(frame(stream)), size})
					return &http.Response{StatusCode: 200, Request: r, Body: body}, nil
				}, options{retry: provider.Retry{Attempts: 1}})
				if got := listen(deadline(t), m, nil); got.err != nil || got.said != "K\u00f6ln \U0001f389 word" {
					t.Errorf("%s, %s, in pieces of %d bytes: %q, %v", d.name, name, size, got.said, got.err)
				}
			}
		}
	}
}

// pieces is a network that carries few bytes at a time.
type pieces struct {
	r    io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.size)]) }

// Wherever a stream is cut, inside a line or a character too: what was whole is said, and nothing else.
func TestStreamsCutAnywhere(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		one := strings.Replace(d.word, "word ", "K\u00f6ln", 1)
		stream := one + strings.Replace(d.word, "word ", "\U0001f389", 1)
		for cut := range len(stream) {
			for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
				m := d.model(func(r *http.Request) (*http.Response, error) {
					body := io.NopCloser(io.MultiReader(strings.NewReader(stream[:cut]), failing{end}))
					return &http.Response{StatusCode: 200, Request: r, Body: body}, nil
				}, options{retry: provider.Retry{Attempts: 1}})
				got := listen(deadline(t), m, nil)
				said, kind := "", provider.KindFailure
				if cut >= len(one) {
					said, kind = "K\u00f6ln", provider.KindBroken
				}
				if got.said != said || got.kind != kind || !utf8.ValidString(got.said) {
					t.Fatalf("%s, cut at %d by %v: %+v", d.name, cut, end, got)
				}
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A server may send a line without an end. Little more than an answer may have is ever read of it.
func TestEndlessEventsAreNotHeld(t *testing.T) {
	t.Parallel()
	const limit, least = 10_000, 1 << 20
	for _, d := range dialects {
		for name, piece := range map[string]string{
			"line": "x", "data": "data: x\n", "comment": ": x\n", "field": "x: y\n", "name": "event: x\n",
		} {
			endless := &counted{r: io.MultiReader(strings.NewReader("data: "), &repeated{text: piece})}
			m := d.model(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(endless)}, nil
			}, options{maxBytes: limit})
			if got := listen(deadline(t), m, nil); got.kind != provider.KindBroken || endless.read > least {
				t.Errorf("%s, %s: %+v after %d bytes", d.name, name, got, endless.read)
			}
		}
	}
}

// repeated is 100 MB of a text.
type repeated struct {
	text string
	sent int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.sent > 100<<20 {
		return 0, io.EOF
	}
	n := 0
	for n+len(r.text) <= len(p) {
		n += copy(p[n:], r.text)
	}
	r.sent += n
	return n, nil
}

type counted struct {
	r    io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += n
	return n, err
}

// Servers that speak like a vendor write values of other types than it does.
func TestOpenAIValuesOfOtherTypes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stream, content, calls string }{
		"arguments that are an object": {
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":{"a": [1]}}}`) + toolCallsEnd,
			"", `x echo {"a": [1]}`,
		},
		"numbers that are texts": {
			calls(`{"index":"0","id":"x","function":{"name":"echo","arguments":"{}"}}`) +
				calls(`{"index":"1","id":"y","function":{"name":"ping","arguments":"{}"}}`) + toolCallsEnd,
			"", "x echo {}, y ping {}",
		},
		"fractions": {
			calls(`{"index":0.0,"id":"x","function":{"name":"echo","arguments":"{}"}}`) + toolCallsEnd, "", "x echo {}",
		},
		"an id that is a number": {
			calls(`{"index":0,"id":17,"function":{"name":"echo","arguments":"{}"}}`) + toolCallsEnd, "", "17 echo {}",
		},
		"nothing": {
			delta(`{"content":null,"refusal":null,"tool_calls":null,"role":null}`) + delta(`null`) +
				delta(`{"content":"a"}`) +
				`data: {"choices":null,"usage":null,"error":null}` + "\n\n" +
				strings.Replace(toolCallsEnd, "tool_calls", "stop", 1),
			"a", "",
		},
		"a content that is none": {
			delta(`{"content":"a"}`) + delta(`{"content":7}`) + delta(`{"content":["b"]}`) + delta(`[]`) +
				strings.Replace(toolCallsEnd, "tool_calls", "stop", 1), `a7["b"]`, "",
		},
		"usage of fractions": {
			delta(`{"content":"a"}`) + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":3.0,"completion_tokens":"4"}}` + "\n\n", "a", "",
		},
	} {
		s := scripted.OpenAI(t, scripted.Reply(scripted.Raw(c.stream), scripted.End()))
		a, err := openAI(s).Generate(deadline(t), ask("hi"), nil)
		var got []string
		for _, call := range a.Message.ToolCalls {
			got = append(got, call.ID+" "+call.Name+" "+call.Args)
		}
		if err != nil || a.Message.Content != c.content || strings.Join(got, ", ") != c.calls {
			t.Errorf("%s: %q, calls %q, %v", name, a.Message.Content, got, err)
		}
		if strings.HasPrefix(name, "usage") && a.Usage != (provider.Usage{Input: 3, Output: 4}) {
			t.Errorf("%s: %+v", name, a.Usage)
		}
	}
}

// An event that is named an error is one, whatever its data look like.
func TestErrorEvents(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`{"error":{"message":"no room"}}`, `{"message":"no room"}`, `no room`} {
		onBoth(t, func(t *testing.T, b backend) {
			s := b.server(t, scripted.Reply(scripted.Text("Hel", "lo"), scripted.Raw(event("error", data)),
				scripted.Text("!")))
			_, e, h := fail(t, b.model(s, options{}), provider.KindBroken)
			if h.said() != "Hello" || !strings.Contains(e.Error(), "no room") {
				t.Errorf("%s: said %q, %v", data, h.said(), e)
			}
		})
	}
}
