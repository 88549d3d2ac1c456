package files

import (
	"context"
	"hash/maphash"
)

// turns has changes of one file of this process take turns: a model may ask for several at once. Different files share
// a turn now and then. There are few: an edit of the longest file takes some fifty megabytes of memory.
type turns struct {
	seed maphash.Seed
	free [4]chan struct{} // one free place each
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.free {
		t.free[i] = make(chan struct{}, 1)
	}
	return t
}

// take waits for the turn of a file. The caller calls done when it has changed the file.
func (t *turns) take(ctx context.Context, workspace string, p place) (done func(), err error) {
	place := t.free[maphash.String(t.seed, workspace+"/"+p.String())%uint64(len(t.free))]
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
