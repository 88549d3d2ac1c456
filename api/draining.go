package api

import (
	"context"
	"sync"
	"time"
)

// drainPoll is how soon streams learn that the pod is stopping, which waits for them.
const drainPoll = 100 * time.Millisecond

// drainWatch tells streams that the pod begins to stop: one goroutine looks for all of them, while there are any. It is safe
// for concurrent use.
type drainWatch struct {
	draining func() bool

	mu    sync.Mutex
	users int
	ctx   context.Context // ends when the pod begins to stop
	stop  context.CancelFunc
	done  chan struct{}
}

// until returns a context that ends with ctx or when the pod begins to stop, and what must be called at the end.
func (w *drainWatch) until(ctx context.Context) (context.Context, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; w.users == 1 {
		w.ctx, w.stop = context.WithCancel(context.Background())
		w.done = make(chan struct{})
		go w.look(w.ctx, w.stop, w.done)
	}
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(w.ctx, cancel)
	return ctx, func() {
		forget()
		cancel()
		w.leave()
	}
}

func (w *drainWatch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		<-w.done
	}
}

func (w *drainWatch) look(ctx context.Context, stop context.CancelFunc, done chan struct{}) {
	defer close(done)
	for !w.draining() {
		if !pause(ctx, drainPoll) {
			return
		}
	}
	stop()
}
