package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient takes in so many bytes a second, and fails when its deadline comes first.
type slowClient struct {
	http.ResponseWriter
	rate     int
	deadline time.Time
}

func (s *slowClient) SetWriteDeadline(at time.Time) error {
	s.deadline = at
	return nil
}

func (s *slowClient) Write(p []byte) (int, error) {
	time.Sleep(time.Second * time.Duration(len(p)) / time.Duration(s.rate))
	if time.Now().After(s.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}

// A transfer that is slower than 64 KiB a second over ten seconds is cut; one that is a little faster takes its time.
func TestPaceOfTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		move := func(rate int) (took time.Duration, err error) {
			began := time.Now()
			client := &slowClient{ResponseWriter: httptest.NewRecorder(), rate: rate}
			to := &pacedWriter{client, newPace(http.NewResponseController(client).SetWriteDeadline)}
			_, err = io.Copy(to, struct{ io.Reader }{bytes.NewReader(make([]byte, 16<<20))})
			return time.Since(began), err
		}
		if took, err := move(70 << 10); err != nil || took < time.Minute {
			t.Errorf("70 KiB a second: %v after %v", err, took)
		}
		if took, err := move(50 << 10); !errors.Is(err, os.ErrDeadlineExceeded) || took > 2*transferTime {
			t.Errorf("50 KiB a second: %v after %v", err, took)
		}
	})
}
