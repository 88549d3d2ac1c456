// Package otlptest is a collector for tests: it receives spans by OTLP over HTTP and over gRPC without TLS, on one
// port. It decodes them with code of its own, which internal/otlp/official compares with OpenTelemetry's types.
package otlptest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Span is a span as received.
type Span struct {
	Trace, ID, Parent string // in hexadecimal; Parent is empty for the first span of a trace
	Name              string
	Kind              int               // as in OTLP: 1 internal, 2 server, 3 client
	Links             []string          // ids of traces
	Attributes        map[string]string // numbers as decimals; lists are their first value
	Resource          map[string]string
	Failed            bool
}

// Request is how a batch arrived.
type Request struct {
	Path, Protocol string
	Header         http.Header
}

// Collector receives spans. It is safe for concurrent use.
type Collector struct {
	URL string

	mu       sync.Mutex
	spans    []Span
	requests []Request
	answers  []http.HandlerFunc
}

// New starts a collector, which ends with the test. Each of answers takes the place of an answer, in order; the spans
// of such a request are not kept.
func New(t testing.TB, answers ...http.HandlerFunc) *Collector {
	t.Helper()
	c := &Collector{answers: answers}
	s := httptest.NewUnstartedServer(c)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Spans returns the spans so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Requests returns the requests so far.
func (c *Collector) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// CheckDocumented checks that a page of the documentation has the name and the attributes of each span so far.
func (c *Collector) CheckDocumented(t testing.TB, path string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Spans() {
		operation, _, _ := strings.Cut(s.Name, " ")
		if s.Kind == 2 && s.Attributes["http.route"] != "" {
			operation = "METHOD"
		}
		for _, word := range append(slices.Collect(maps.Keys(s.Attributes)), operation) {
			if !strings.Contains(string(page), "`"+word) {
				t.Errorf("%s does not have %s of the span %q", path, word, s.Name)
			}
		}
	}
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, Request{r.URL.Path, r.Proto, r.Header.Clone()})
	if len(c.answers) > 0 {
		c.answers[0](w, r)
		c.answers = c.answers[1:]
		return
	}
	rpc := r.Header.Get("Content-Type") == "application/grpc"
	zipped := r.Header.Get("Content-Encoding") == "gzip"
	if rpc {
		if len(body) < 5 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
			http.Error(w, "no frame of gRPC", http.StatusBadRequest)
			return
		}
		zipped, body = body[0] == 1, body[5:]
	}
	if zipped {
		in, err := gzip.NewReader(bytes.NewReader(body))
		if err == nil {
			body, err = io.ReadAll(in)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	c.spans = append(c.spans, Decode(body)...)
	if !rpc {
		w.Header().Set("Content-Type", "application/x-protobuf")
		return
	}
	GRPC("0", "")(w, r)
}

// GRPC answers with a status of gRPC.
func GRPC(status, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		if status == "0" {
			_, _ = w.Write(make([]byte, 5))
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", message)
	}
}

// Decode returns the spans of an ExportTraceServiceRequest.
func Decode(request []byte) (all []Span) {
	for _, group := range parse(request)[1] {
		g, resource := parse(group.text), map[string]string(nil)
		for _, r := range g[1] {
			resource = attributes(parse(r.text)[1])
		}
		for _, scoped := range g[2] {
			for _, s := range parse(scoped.text)[2] {
				span := spanOf(parse(s.text))
				span.Resource = resource
				all = append(all, span)
			}
		}
	}
	return all
}

func spanOf(f map[int][]field) Span {
	s := Span{
		Trace: hex.EncodeToString(first(f[1]).text), ID: hex.EncodeToString(first(f[2]).text),
		Parent: hex.EncodeToString(first(f[4]).text), Name: string(first(f[5]).text), Kind: int(first(f[6]).number),
		Attributes: attributes(f[9]), Failed: first(parse(first(f[15]).text)[3]).number == 2,
	}
	for _, l := range f[13] {
		s.Links = append(s.Links, hex.EncodeToString(first(parse(l.text)[1]).text))
	}
	return s
}

func attributes(pairs []field) map[string]string {
	all := make(map[string]string)
	for _, p := range pairs {
		pair := parse(p.text)
		all[string(first(pair[1]).text)] = value(parse(first(pair[2]).text))
	}
	return all
}

func value(v map[int][]field) string {
	switch {
	case v[3] != nil:
		return strconv.FormatInt(int64(v[3][0].number), 10)
	case v[5] != nil:
		return value(parse(first(parse(v[5][0].text)[1]).text))
	default:
		return string(first(v[1]).text)
	}
}

// field is one occurrence of a field.
type field struct {
	text   []byte
	number uint64
}

func first(all []field) field {
	if len(all) == 0 {
		return field{}
	}
	return all[0]
}

// parse returns the fields of a message by number, up to the first malformed one.
func parse(m []byte) map[int][]field {
	all := make(map[int][]field)
	for len(m) > 0 {
		tag, n := binary.Uvarint(m)
		if n <= 0 {
			return all
		}
		m = m[n:]
		var f field
		size := map[uint64]int{1: 8, 5: 4}[tag&7]
		if tag&7 == 0 || tag&7 == 2 {
			if f.number, n = binary.Uvarint(m); n <= 0 {
				return all
			}
			m = m[n:]
		}
		if tag&7 == 2 {
			size = int(f.number)
		}
		if size < 0 || size > len(m) {
			return all
		}
		f.text, m = m[:size], m[size:]
		all[int(tag>>3)] = append(all[int(tag>>3)], f)
	}
	return all
}
