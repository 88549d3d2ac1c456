package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// stuck is a client that takes in some parts of an answer, and then nothing until its deadline is in the past.
type stuck struct {
	http.ResponseWriter
	takes int

	mu  sync.Mutex
	cut chan struct{}
}

func newStuck(takes int) *stuck {
	return &stuck{ResponseWriter: httptest.NewRecorder(), takes: takes, cut: make(chan struct{})}
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.takes--; s.takes >= 0 {
		return len(p), nil
	}
	<-s.cut
	return 0, errors.New("deadline exceeded")
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Before(time.Now()) {
		close(s.cut)
	}
	return nil
}

// Clients that do not read make room for the answers of others: first those that have not read for the longest time,
// and no more of them than have to.
func TestStalledResponsesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResponses(10 << 20)
		body := bytes.Repeat([]byte("x"), 4<<20)
		var writing sync.WaitGroup
		clients := []*stuck{newStuck(0), newStuck(1)}
		for i, c := range clients {
			room, err := r.reserve(t.Context(), share.Owner{Tenant: fmt.Sprint(i)}, 4<<20)
			if err != nil {
				t.Fatal(err)
			}
			writing.Go(func() {
				defer room.release()
				room.writeParts(c, body)
			})
			time.Sleep(time.Second)
		}
		room, err := r.reserve(t.Context(), share.Owner{Tenant: "a"}, 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-clients[0].cut:
		default:
			t.Error("the slowest client was not cut off")
		}
		select {
		case <-clients[1].cut:
			t.Error("a client was cut off although there was room")
		default:
		}
		room.shrink(100)
		small, err := r.reserve(t.Context(), share.Owner{Tenant: "b"}, 5<<20)
		if err != nil {
			t.Fatal(err)
		}
		r.disconnectStalled(share.Owner{Tenant: "b"}, 1<<40)
		select {
		case <-clients[1].cut:
			t.Error("a tenant that holds more had a client of another cut off")
		default:
		}
		small.release()
		room.release()
		r.disconnectStalled(share.Owner{Tenant: "c"}, 1<<40)
		writing.Wait()
		whole, err := r.reserve(t.Context(), share.Owner{}, 1<<40)
		if err != nil {
			t.Fatal("not all room was given up:", err)
		}
		whole.release()
	})
}

// An identity at its own bound has no other client cut off: it would get nothing by that.
func TestAnIdentityAtItsBoundMakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newByteBudget(share.Bounds{Pod: 10 << 20, Identity: 1 << 20}, (*http.ResponseController).SetWriteDeadline)
		slow := newStuck(0)
		var writing sync.WaitGroup
		other, err := r.reserve(t.Context(), share.Owner{Tenant: "b"}, 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		writing.Go(func() {
			defer other.release()
			other.writeParts(slow, bytes.Repeat([]byte("x"), 4<<20))
		})
		anna := share.Owner{Tenant: "a", Identity: "anna"}
		held, err := r.reserve(t.Context(), anna, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.reserve(t.Context(), anna, 1<<20); err == nil {
			t.Error("an identity has more than it may")
		}
		select {
		case <-slow.cut:
			t.Error("an identity at its own bound had a client of another tenant cut off")
		default:
		}
		held.release()
		r.disconnectStalled(share.Owner{Tenant: "c"}, 1<<40)
		writing.Wait()
	})
}

// What is being made is not cut off: who finds no room is told when to come back.
func TestNoRoomForAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResponses(1 << 20)
		room, err := r.reserve(t.Context(), share.Owner{}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer room.release()
		began := time.Now()
		_, err = r.reserve(t.Context(), share.Owner{}, 1)
		if e := registry.AsError(err); e.Code != registry.CodeBusy || e.RetryAfter <= 0 ||
			time.Since(began) != budgetWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.reserve(ctx, share.Owner{}, 1); err == nil {
			t.Error("room for a caller that is gone")
		}
	})
}

// A request for many bytes has its turn when those before it are done, however many smaller ones come after it.
func TestLargeRequestIsNotPassedBySmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResponses(8 << 20)
		first, err := r.reserve(t.Context(), share.Owner{}, 6<<20)
		if err != nil {
			t.Fatal(err)
		}
		var requests sync.WaitGroup
		large := make(chan error, 1)
		requests.Go(func() {
			held, err := r.reserve(t.Context(), share.Owner{}, 8<<20)
			if err == nil {
				held.release()
			}
			large <- err
		})
		synctest.Wait() // it is the first in the queue
		stream, stop := context.WithCancel(t.Context())
		requests.Go(func() {
			for stream.Err() == nil { // there is always one that holds its bytes, and one that waits
				requests.Go(func() {
					if small, err := r.reserve(stream, share.Owner{}, 1<<20); err == nil {
						time.Sleep(170 * time.Millisecond)
						small.release()
					}
				})
				time.Sleep(13 * time.Millisecond)
			}
		})
		time.Sleep(200 * time.Millisecond)
		first.release()
		if err := <-large; err != nil {
			t.Errorf("the large request was passed by smaller ones until its time was over: %v", err)
		}
		stop()
		requests.Wait()
	})
}
