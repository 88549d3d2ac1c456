package chat

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/provider"
)

const (
	draftEvery = 250 * time.Millisecond // from one note of what is being said to the next
	draftTime  = time.Second            // after which a note that the store does not take is dropped
)

// draft is an answer while the model writes it. It is saved in the store now and then, so that little of it is lost
// when the pod dies. A goroutine of its own saves it, because a slow store must not slow down what people read.
type draft struct {
	turn    string
	at      time.Time     // when the model began; with turn, it tells which message a note belongs to
	journal *journal      // nil: nothing is saved
	dirty   chan struct{} // capacity 1: there is something to note

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	text     strings.Builder
	thinking strings.Builder
}

// newDraft begins an answer. With j nil, nothing is saved. Its caller must call stop.
func newDraft(turn string, j *journal) *draft {
	ctx, cancel := context.WithCancel(context.Background())
	d := &draft{turn: turn, at: time.Now().UTC(), journal: j, dirty: make(chan struct{}, 1), cancel: cancel}
	if j != nil {
		d.done.Go(func() { d.note(ctx) })
	}
	return d
}

// add appends to the answer. It never waits for the store.
func (d *draft) add(delta provider.Delta) {
	if delta == (provider.Delta{}) {
		return // nothing to note
	}
	d.mu.Lock()
	d.text.WriteString(delta.Text)
	d.text.WriteString(delta.Refusal)
	d.thinking.WriteString(delta.Thinking)
	d.mu.Unlock()
	select {
	case d.dirty <- struct{}{}:
	default:
	}
}

// stop ends the saving. A save that is under way is abandoned. Should it arrive all the same, recovery recognizes it by
// its time.
func (d *draft) stop() {
	d.cancel()
	d.done.Wait()
}

// message returns the answer so far.
func (d *draft) message() provider.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := provider.Message{Role: provider.RoleAssistant, Content: d.text.String(), Turn: d.turn, At: d.at}
	if d.thinking.Len() > 0 {
		m.Thinking = []provider.Thought{{Text: d.thinking.String()}}
	}
	return m
}

// note saves the answer until ctx ends: first after draftEvery, so that short answers cost the store nothing, then at
// most once in that time.
func (d *draft) note(ctx context.Context) {
	pause := time.NewTimer(draftEvery)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-d.dirty:
		case <-ctx.Done():
			return
		}
		d.saveOnce(ctx)
		pause.Reset(draftEvery)
	}
}

// saveOnce saves the answer so far. A failure costs only this save: the turn continues, and the next save is complete.
// A lost turn shows when it is renewed.
func (d *draft) saveOnce(ctx context.Context) {
	raw, _ := json.Marshal(d.message()) // which cannot fail: a message is plain data
	ctx, cancel := context.WithTimeout(ctx, draftTime)
	defer cancel()
	_ = d.journal.store.SaveDraft(ctx, d.journal.turn, raw)
}
