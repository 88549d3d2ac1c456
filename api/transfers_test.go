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
			to := &pacedWriter{client, pace{setDeadline: client.SetWriteDeadline}}
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

// Read sends as Write takes.
func (s *slowClient) Read(p []byte) (int, error) { return s.Write(p) }

// slowStore takes longer for what it writes or reads than the client has for a part.
type slowStore struct{ of io.ReadWriter }

func (s slowStore) Write(p []byte) (int, error) {
	time.Sleep(2 * transferTime)
	return s.of.Write(p)
}

func (s slowStore) Read(p []byte) (int, error) {
	time.Sleep(2 * transferTime)
	return s.of.Read(p)
}

// The time of the store is not the client's: it has its pace whatever the store takes. Once an upload has come, there
// is no deadline left under which the server could take the client for gone.
func TestPaceIsTheClients(t *testing.T) {
	const size = 2 * transferPart
	synctest.Test(t, func(t *testing.T) {
		upload := func(rate int) error {
			client := &slowClient{rate: rate}
			from := &pacedReader{io.LimitReader(client, size), pace{setDeadline: client.SetWriteDeadline}}
			_, err := io.Copy(slowStore{&bytes.Buffer{}}, from)
			if err == nil && !client.deadline.IsZero() {
				t.Errorf("%d bytes a second: the deadline %v is left", rate, client.deadline)
			}
			return err
		}
		download := func(rate int) error {
			client := &slowClient{ResponseWriter: httptest.NewRecorder(), rate: rate}
			to := &pacedWriter{client, pace{setDeadline: client.SetWriteDeadline}}
			_, err := io.Copy(to, slowStore{bytes.NewBuffer(make([]byte, size))})
			return err
		}
		for name, move := range map[string]func(rate int) error{"upload": upload, "download": download} {
			if err := move(70 << 10); err != nil {
				t.Errorf("%s at 70 KiB a second: %v", name, err)
			}
			if err := move(50 << 10); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s at 50 KiB a second: %v", name, err)
			}
		}
	})
}
