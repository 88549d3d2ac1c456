package ssereader_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/farhand/farhand/internal/ssereader"
)

// readAll returns the events of a stream, one a line, and the error behind them.
func readAll(r io.Reader, limit int) (string, error) {
	events := ssereader.New(r, limit)
	var out strings.Builder
	for {
		e, err := events.Next()
		if err != nil {
			return out.String(), err
		}
		fmt.Fprintf(&out, "%s/%s/%q\n", e.ID, e.Name, e.Data)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stream, want string }{
		"nothing":               {"", ""},
		"one":                   {"data: a\n\n", "//\"a\"\n"},
		"all fields":            {"id: 7\nevent: news\ndata: a\nretry: 10\n\n", "7/news/\"a\"\n"},
		"several data fields":   {"data: a\ndata:b\ndata\ndata:  c\n\n", "//\"a\\nb\\n\\n c\"\n"},
		"empty data":            {"data\n\ndata:\n\n", "//\"\"\n//\"\"\n"},
		"no data":               {"event: x\nid: 1\n\ndata: a\n\n", "//\"a\"\n"},
		"comments":              {": hi\n\n:\ndata: a\n: there\n\n", "//\"a\"\n"},
		"carriage returns":      {"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", "//\"a\"\n//\"b\"\n//\"c\"\n"},
		"a byte order mark":     {"\ufeffdata: \ufeffa\n\n\ufeffdata: b\n\n", "//\"\\ufeffa\"\n"},
		"incomplete":            {"data: a\n\ndata: b\n", "//\"a\"\n"},
		"cut in a line":         {"data: a\n\ndata: b", "//\"a\"\n"},
		"names of other fields": {"Data: a\n data: b\ndata : c\n\ndata: d\n\n", "//\"d\"\n"},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.stream), iotest.OneByteReader(strings.NewReader(c.stream))} {
			if got, err := readAll(r, 100); got != c.want || err != io.EOF {
				t.Errorf("%s: %q and %v, want %q", name, got, err, c.want)
			}
		}
	}
}

// An event is there with its empty line, though the reader blocks behind it.
func TestEventsAreNotDelayed(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r", "\n\r"} {
		in, out := io.Pipe()
		go func() { _, _ = io.WriteString(out, "data: a"+end) }()
		if e, err := ssereader.New(in, 100).Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: %q, %v", end, e.Data, err)
		}
		_ = in.Close()
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 50
	for _, text := range []string{"x", "data: x\n", ": x\n", "event: x\n", "id: 1\r"} {
		in := strings.NewReader("data: a\n\n" + strings.Repeat(text, 100_000))
		if got, err := readAll(in, limit); got != "//\"a\"\n" || !errors.Is(err, ssereader.ErrTooLong) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if read := in.Size() - int64(in.Len()); read > 5000 {
			t.Errorf("%q: %d bytes were read", text, read)
		}
	}
	// What counts is one event, however many there are.
	many := strings.NewReader(strings.Repeat(": x\n\ndata: "+strings.Repeat("y", 42)+"\n\n", 1000))
	if got, err := readAll(many, limit); err != io.EOF || strings.Count(got, "\n") != 1000 {
		t.Errorf("%d events, %v", strings.Count(got, "\n"), err)
	}
}

func TestErrorsOfTheStreamAreKept(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	stream := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))
	if got, err := readAll(stream, 100); got != "//\"a\"\n" || err != broken {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzReader holds that no stream is read differently in one piece and in many, and that none passes its bound.
func FuzzReader(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\nid: 1\revent:x\ndata\n\n"))
	f.Add([]byte("\ufeff: c\n\ndata:x"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 64
		whole, err := readAll(bytes.NewReader(stream), limit)
		pieces, pieceErr := readAll(iotest.OneByteReader(bytes.NewReader(stream)), limit)
		if whole != pieces || err != pieceErr {
			t.Fatalf("%q and %v, in pieces %q and %v", whole, err, pieces, pieceErr)
		}
	})
}
