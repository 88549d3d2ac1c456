package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/page"
)

// Long strings are shortened, escapes stay whole, and the rest of the JSON is unchanged.
func TestMessagesAreShortened(t *testing.T) {
	long := strings.Repeat("é", 40) + strings.Repeat(`\u00e9`, 40) + strings.Repeat(`\"\\`, 40)
	for _, tt := range []struct{ in, want string }{
		{`{"a":"b","c":[1,true,null]}`, `{"a":"b","c":[1,true,null]}`},
		{`{"a":"` + strings.Repeat("x", 100) + `","b":"c"}`, `{"a":"` + strings.Repeat("x", 20) + `","b":"c"}`},
		{`{"a":"` + long + `","b":1}`, `{"a":"` + strings.Repeat("é", 10) + `","b":1}`},
		{`{"a":"` + strings.Repeat(`\u00e9`, 9) + `"}`, `{"a":"` + strings.Repeat(`\u00e9`, 4) + `"}`},
		{`{"a":"` + strings.Repeat(`\"\\`, 9) + `","b":"\""}`, `{"a":"` + strings.Repeat(`\"\\`, 5) + `","b":"\""}`},
		{"[1]", "[1]"}, {"", ""},
	} {
		for name, reader := range map[string]io.Reader{
			"whole": strings.NewReader(tt.in + "\x00next"),
			"bytes": iotest.OneByteReader(strings.NewReader(tt.in + "\x00next")),
		} {
			in := bufio.NewReader(reader)
			m := &message{in: in, longest: 20}
			text, err := m.all()
			if rest, _ := io.ReadAll(in); err != nil || string(text) != tt.want || string(rest) != "next" {
				t.Errorf("%s %s: %s, %v, then %q", name, tt.in, text, err, rest)
			}
			if tt.want != "" && !json.Valid(text) {
				t.Errorf("%s %s: %s", name, tt.in, text)
			}
		}
	}
}

// pipe returns a wire whose Chromium says these messages.
func pipe(t *testing.T, flooded func(), messages ...string) *wire {
	t.Helper()
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := io.NopCloser(strings.NewReader(strings.Join(messages, "\x00") + "\x00"))
	w := newWire(said, out, flooded)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// A too long answer is an error for its request only. Events that are not used or too long are skipped.
func TestLongMessages(t *testing.T) {
	many := strings.Repeat(`"x",`, maxMessage/3)
	w := pipe(t, nil, `{"method":"Runtime.consoleAPICalled","params":{"args":[`+many+`1]},"sessionId":"S"}`,
		`{"method":"Network.requestWillBeSent","params":{"x":[`+many+`1]},"sessionId":"S"}`,
		`{"method":"Page.frameDetached","params":{"frameId":`, // not JSON
		`{"id":7,"result":{"x":[`+many+`1]},"sessionId":"S"}`,
		`{"id":8,"result":{"data":"`+strings.Repeat("A", maxMessage/2)+`"},"sessionId":"S"}`,
		`{"method":"Page.fileChooserOpened","params":{"mode":"`+strings.Repeat("m", maxMessage)+`"},"sessionId":"S"}`)
	for id, method := range map[int64]string{7: "Page.getFrameTree", 8: page.CommandCaptureScreenshot} {
		err := w.Write(t.Context(), &cdproto.Message{ID: id, SessionID: "S", Method: cdproto.MethodType(method)})
		if err != nil {
			t.Fatal(err)
		}
	}
	var msg cdproto.Message
	if err := w.Read(t.Context(), &msg); err != nil || msg.ID != 7 || msg.SessionID != "S" || !isTooLong(msg.Error) {
		t.Errorf("%+v, %v", msg, err)
	}
	msg = cdproto.Message{}
	if err := w.Read(t.Context(), &msg); err != nil || msg.ID != 8 || len(msg.Result) < maxMessage/2 {
		t.Errorf("%d bytes for %d, %v", len(msg.Result), msg.ID, err)
	}
	msg = cdproto.Message{}
	if err := w.Read(t.Context(), &msg); err != nil || msg.Method != "Page.fileChooserOpened" ||
		len(msg.Params) > 2*maxString {
		t.Errorf("%d bytes of %s, %v", len(msg.Params), msg.Method, err)
	}
	if err := w.Read(t.Context(), &msg); err != io.EOF || len(w.asked) > 0 {
		t.Errorf("%v, %d answers awaited", err, len(w.asked))
	}
}

// A browser whose pages load or remove frames without end is ended, because the memory for them is not given back.
func TestFramesAreBounded(t *testing.T) {
	for _, event := range []string{
		`{"method":"Page.frameDetached","params":{"frameId":"%d"},"sessionId":"S"}`,
		`{"method":"Page.frameNavigated","params":{"frame":{"id":"%d","parentId":"0"}},"sessionId":"S"}`,
	} {
		ended := false
		events := make([]string, maxFramesMade+2)
		for i := range events {
			events[i] = fmt.Sprintf(event, i)
		}
		w := pipe(t, func() { ended = true }, events...)
		for range maxFramesMade {
			var msg cdproto.Message
			w.credit = workBurst // no waits
			if err := w.Read(t.Context(), &msg); err != nil {
				t.Fatal(err)
			}
		}
		w.credit = workBurst
		if err := w.Read(t.Context(), new(cdproto.Message)); !errors.Is(err, errFlood) || !ended {
			t.Errorf("%v, ended: %v", err, ended)
		}
	}
}
