package redisconn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowServer answers a pipeline once it is let go, each command with its own argument.
type slowServer struct {
	mu    sync.Mutex
	sizes []int // of the pipelines that came
	ended []error
	gate  chan struct{}
}

func (s *slowServer) send(ctx context.Context, commands []redis.Cmder) {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(commands))
	s.mu.Unlock()
	select {
	case <-s.gate:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.ended = append(s.ended, ctx.Err())
	s.mu.Unlock()
	for _, c := range commands {
		if err := ctx.Err(); err != nil {
			c.SetErr(err)
		} else {
			c.(*redis.Cmd).SetVal(c.Args()[0])
		}
	}
}

// sent is what became of the commands of one goroutine.
type sent struct {
	commands []redis.Cmder
	wg       sync.WaitGroup
}

func start(ctx context.Context, t *together, args ...any) *sent {
	s := &sent{}
	for _, a := range args {
		s.commands = append(s.commands, redis.NewCmd(ctx, a))
	}
	s.wg.Go(func() { t.exec(ctx, s.commands) })
	return s
}

func (s *sent) check(t *testing.T, want error) {
	t.Helper()
	s.wg.Wait()
	for _, c := range s.commands {
		if !errors.Is(c.Err(), want) {
			t.Errorf("%v: %v, want %v", c.Args(), c.Err(), want)
		}
		if want == nil && c.(*redis.Cmd).Val() != c.Args()[0] {
			t.Errorf("%v got the answer %v", c.Args(), c.(*redis.Cmd).Val())
		}
	}
}

// allUnderWay returns a server that answers once its gate is closed, and as many pipelines as may be under way to it.
func allUnderWay(t *testing.T) (*slowServer, *together, []*sent) {
	server := &slowServer{gate: make(chan struct{})}
	tog := newTogether(server.send)
	var all []*sent
	for i := range maxUnderWay {
		all = append(all, start(t.Context(), tog, i))
	}
	synctest.Wait()
	return server, tog, all
}

// What comes while maxUnderWay pipelines are under way travels as one, and every goroutine gets its own answers.
func TestWhatComesTogetherTravelsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, tog, all := allUnderWay(t)
		for i := range 300 {
			all = append(all, start(t.Context(), tog, 1000+2*i, 1001+2*i))
		}
		synctest.Wait()
		close(server.gate)
		for _, s := range all {
			s.check(t, nil)
		}
		if n := len(server.sizes); n != maxUnderWay+2 { // 600 commands, of which 512 may go at once
			t.Errorf("pipelines of %v commands", server.sizes)
		}
		if tog.inFlight != 0 || len(tog.waiting) != 0 {
			t.Errorf("at the end %d pipelines are under way, %d wait", tog.inFlight, len(tog.waiting))
		}
	})
}

// Long commands do not travel together: the timeouts of a connection are for a whole pipeline.
func TestAPipelineOfSeveralIsNotLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, tog, all := allUnderWay(t)
		for _, length := range []int{maxTogetherBytes / 2, maxTogetherBytes / 2, 2 * maxTogetherBytes, 1, 1} {
			all = append(all, start(t.Context(), tog, strings.Repeat("x", length)))
			synctest.Wait() // so that they wait in this order
		}
		close(server.gate)
		for _, s := range all {
			s.check(t, nil)
		}
		slices.Sort(server.sizes)
		if want := []int{1, 1, 1, 2, 2}; !slices.Equal(server.sizes, want) {
			t.Errorf("pipelines of %v commands, want %v", server.sizes, want)
		}
	})
}

// A goroutine whose time is up does not wait any longer to be sent, and the others' commands are not its business.
func TestTheContextOfOneEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{gate: make(chan struct{})}
		tog := newTogether(server.send)
		var first []*sent
		for i := range maxUnderWay {
			first = append(first, start(t.Context(), tog, i))
		}
		synctest.Wait()
		impatient, leave := context.WithCancel(t.Context())
		gone := start(impatient, tog, "gone")
		synctest.Wait()
		leave()
		gone.check(t, context.Canceled)

		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leader := start(short, tog, "leader")
		synctest.Wait()
		follower := start(long, tog, "follower")
		synctest.Wait()
		server.gate <- struct{}{} // one pipeline has ended, and the two go out
		synctest.Wait()
		time.Sleep(time.Minute + time.Second) // the leader's time is up
		synctest.Wait()
		close(server.gate)
		for _, s := range append(first, leader, follower) {
			s.check(t, nil)
		}
		if len(server.sizes) != maxUnderWay+1 {
			t.Errorf("pipelines of %v commands", server.sizes)
		}
	})
}

// The latest of the deadlines ends a pipeline that is not answered, and another can go out.
func TestAPipelineThatIsNotAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{gate: make(chan struct{})}
		tog := newTogether(server.send)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all []*sent
		for i := range 10 {
			all = append(all, start(ctx, tog, i))
		}
		for _, s := range all {
			s.check(t, context.DeadlineExceeded)
		}
		close(server.gate)
		start(t.Context(), tog, "after").check(t, nil)
	})
}
