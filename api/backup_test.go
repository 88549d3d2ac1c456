package api_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// heldCopy is an operator whose copy of the state file has the parts that the test gives it.
type heldCopy struct {
	api.Operator
	begun chan struct{}
	parts chan string // "": the disk fails
}

func (o heldCopy) Backup() (io.ReadCloser, int64, error) {
	o.begun <- struct{}{}
	return io.NopCloser(o), int64(len("data")), nil
}

func (o heldCopy) Read(b []byte) (int, error) {
	part, more := <-o.parts
	switch {
	case !more:
		return 0, io.EOF
	case part == "":
		return 0, errors.New("the disk failed")
	}
	return copy(b, part), nil
}

// TestBackupsTakeTurns: a second one is refused while one is sent, and one that ends too early does not look whole.
func TestBackupsTakeTurns(t *testing.T) {
	o := heldCopy{begun: make(chan struct{}), parts: make(chan string)}
	f := newFleet(t, setup{change: func(cfg *api.Config) { cfg.Operator = o }})
	type outcome struct {
		reply
		err error
	}
	ask := func() chan outcome {
		done := make(chan outcome, 1)
		go func() {
			r, err := f.try(request{path: "/api/backup"})
			done <- outcome{r, err}
		}()
		<-o.begun
		return done
	}
	first := ask()
	o.parts <- "da"
	wantProblem(f.get("/api/backup"), http.StatusTooManyRequests, registry.CodeBusy)
	o.parts <- "ta"
	o.parts <- ""
	if r := <-first; r.err != nil || string(r.body) != "data" || r.header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("the first: %q, %v", r.body, r.err)
	}
	next := ask()
	o.parts <- "da"
	o.parts <- ""
	if r := <-next; r.err == nil {
		t.Errorf("a copy that was cut off: %q", r.body)
	}
}
