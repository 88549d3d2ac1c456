package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/farhand/farhand/internal/share"
)

// offered is a body that notes how much room there is when it is first read.
type offered struct {
	io.Reader
	room int
}

func (o *offered) Read(p []byte) (int, error) {
	if o.room == 0 {
		o.room = len(p)
	}
	return o.Reader.Read(p)
}

// What a caller says is coming takes little memory before it has come; what comes is read all the same.
func TestAnnouncedBytesTakeNoMemory(t *testing.T) {
	const limit = 1 << 20
	for _, sent := range []int{0, 1000, limit} {
		body := &offered{Reader: bytes.NewReader(make([]byte, sent))}
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ContentLength = limit
		got, held, err := newBodies(limit).readBody(httptest.NewRecorder(), r, share.Owner{}, limit)
		if err != nil || len(got) != sent {
			t.Errorf("read %d of %d bytes, %v", len(got), sent, err)
		}
		if held == nil || held.size != limit {
			t.Error("no room is held for the body")
		}
		if body.room > smallBody {
			t.Errorf("there was room for %d bytes before any came", body.room)
		}
	}
}
