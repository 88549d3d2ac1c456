package routing

import "sync"

// listeners is a table of goroutines that wait for news of a call or a ping, by its id. The zero value is ready.
type listeners[T any] struct {
	mu   sync.Mutex
	byID map[string]map[chan T]struct{}
}

// listen returns a channel that gets what notify is given for the id from now on, and a function that ends this. The
// channel holds capacity values; what does not fit is dropped.
func (l *listeners[T]) listen(id string, capacity int) (news <-chan T, stop func()) {
	c := make(chan T, capacity)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = make(map[string]map[chan T]struct{})
	}
	if l.byID[id] == nil {
		l.byID[id] = make(map[chan T]struct{})
	}
	l.byID[id][c] = struct{}{}
	return c, func() { l.remove(id, c) }
}

func (l *listeners[T]) remove(id string, c chan T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID[id], c)
	if len(l.byID[id]) == 0 {
		delete(l.byID, id)
	}
}

// notify hands v to all that listen for the id. It does not block.
func (l *listeners[T]) notify(id string, v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.byID[id] {
		select {
		case c <- v:
		default:
		}
	}
}
