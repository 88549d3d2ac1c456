package provider

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// Over HTTP/2 a provider could fill 4 MiB of each answer that is not read yet, and have the pod answer pings all the
// time. So it gets HTTP/1.1, also if the default transport has spoken HTTP/2 before.
func TestProvidersGetNoHTTP2(t *testing.T) {
	t.Parallel()
	protocols := make(chan string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protocols <- r.Proto
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := pooled().(*http.Transport)
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	resp, err := (&http.Client{Transport: transport}).Post(s.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := <-protocols; got != "HTTP/1.1" {
		t.Errorf("the provider gets %s", got)
	}
}

// All that an answer holds of a stream counts, wherever an event has it. Otherwise some events of the greatest length
// take the memory of the pod.
func TestAllPartsOfAnAnswerCount(t *testing.T) {
	t.Parallel()
	const limit, length, events = 100_000, 60_000, 50
	long := strings.Repeat("x", length)
	for name, block := range map[string]string{
		"a signature":     `{"type":"thinking","signature":"` + long + `"}`,
		"an input":        `{"type":"tool_use","id":"i","name":"n","input":{"a":"` + long + `"}}`,
		"a hidden text":   `{"type":"redacted_thinking","data":"` + long + `"}`,
		"an id":           `{"type":"tool_use","id":"` + long + `"}`,
		"a thought":       `{"type":"thinking","thinking":"` + long + `"}`,
		"a name and text": `{"type":"tool_use","name":"` + long + `"}`,
	} {
		var stream bytes.Buffer
		for i := range events {
			fmt.Fprintf(&stream, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":%d,"+
				"\"content_block\":%s}\n\n", i, block)
		}
		read := 0
		m := NewAnthropic(Config{Name: "m", MaxBytes: limit, HTTPClient: &http.Client{Transport: roundTrip(
			func(r *http.Request) (*http.Response, error) {
				body := io.TeeReader(&stream, counting{&read})
				return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(body)}, nil
			})}})
		_, err := m.Generate(t.Context(), Request{Messages: []Message{{Role: RoleUser, Content: "hi"}}}, nil)
		if err == nil || !strings.Contains(err.Error(), "too long") || read > 3*length {
			t.Errorf("%s: %v, after %d bytes", name, err, read)
		}
	}
}

// The input of a call in one piece counts once: an answer of the greatest length is still one.
func TestAnInputCountsOnce(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	input := `{"a":"` + strings.Repeat("x", limit*6/10) + `"}`
	stream := `event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":` +
		`{"type":"tool_use","id":"i","name":"n","input":` + input + "}}\n\n" +
		"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}` + "\n\n"
	m := NewAnthropic(Config{Name: "m", MaxBytes: limit, HTTPClient: &http.Client{Transport: roundTrip(
		func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(stream))},
				nil
		})}})
	a, err := m.Generate(t.Context(), Request{Messages: []Message{{Role: RoleUser, Content: "hi"}}}, nil)
	if err != nil || len(a.Message.ToolCalls) != 1 || a.Message.ToolCalls[0].Args != input {
		t.Errorf("%v, %d calls", err, len(a.Message.ToolCalls))
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type counting struct{ n *int }

func (c counting) Write(p []byte) (int, error) {
	*c.n += len(p)
	return len(p), nil
}

// A report of an error takes no multiple of the memory of its event, for which room was asked.
func TestMemoryOfAReportedError(t *testing.T) {
	const length, most = 4 << 20, 8 << 20
	m := NewOpenAI(Config{Name: "m"})
	event := []byte(`{"error":{"message":"` + strings.Repeat("a ", length/2) + `"}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := m.reportedIn(event)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most || len(f.err.Message) > 1000 {
		t.Errorf("%d bytes for an event of %d: %.100s", took, len(event), f.err.Message)
	}
}
