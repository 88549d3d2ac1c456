package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// tape is a feed in memory that counts how often it is asked, and may be away.
type tape struct {
	Calls

	mu    sync.Mutex
	all   []registry.Activity
	grown chan struct{}
	asked int
	away  bool
}

func newTape(n int) *tape {
	t := &tape{grown: make(chan struct{})}
	t.add(n)
	return t
}

func (t *tape) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range n {
		id := fmt.Sprintf("%d-0", len(t.all)+1)
		t.all = append(t.all, registry.Activity{ID: id, Type: registry.ActivityPodDied, Reason: "pod-" + id})
	}
	close(t.grown)
	t.grown = make(chan struct{})
}

func (t *tape) setAway(away bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = away
}

func (t *tape) FeedEnd(context.Context, string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	switch {
	case t.away:
		return "", registry.StoreUnavailable("read", errors.New("refused"))
	case len(t.all) == 0:
		return "", nil
	}
	return t.all[len(t.all)-1].ID, nil
}

func (t *tape) Feed(ctx context.Context, _, after string, limit int, wait time.Duration) ([]registry.Activity, error) {
	deadline := time.Now().Add(wait)
	for {
		t.mu.Lock()
		t.asked++
		away, grown := t.away, t.grown
		var found []registry.Activity
		for _, a := range t.all {
			if registry.CompareFeedIDs(a.ID, after) > 0 && len(found) < limit {
				found = append(found, a)
			}
		}
		t.mu.Unlock()
		left := time.Until(deadline)
		if away {
			return nil, registry.StoreUnavailable("read", errors.New("refused"))
		}
		if len(found) > 0 || left <= 0 || ctx.Err() != nil {
			return found, ctx.Err()
		}
		await(ctx, grown, left)
	}
}

// heldTape has those who catch up wait until it is opened.
type heldTape struct {
	*tape
	open chan struct{}
	by   map[string]int // who read, by tenant; under the lock of the tape
}

func (h *heldTape) Feed(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	if wait == 0 {
		h.mu.Lock()
		h.by[tenant]++
		h.mu.Unlock()
		<-h.open
	}
	return h.tape.Feed(ctx, tenant, after, limit, wait)
}

// Streams of one tenant that catch up leave room for those of another.
func TestCatchingUpIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &heldTape{newTape(1), make(chan struct{}), make(map[string]int)}
		h := hubHandler(held)
		var streams sync.WaitGroup
		catchUp := func(tenant, user string) {
			streams.Go(func() {
				reader, leave := h.hub.follow(tenant)
				defer leave()
				f := &feedFollower{handler: h, reader: reader, by: share.Owner{Tenant: tenant, Identity: user},
					out: ssewriter.New(httptest.NewRecorder())}
				if err := f.catchUp(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		want := func(hostile, other int) {
			t.Helper()
			synctest.Wait()
			held.mu.Lock()
			defer held.mu.Unlock()
			if held.by["hostile"] != hostile || held.by["other"] != other {
				t.Errorf("%v catch up, want %d and %d", held.by, hostile, other)
			}
		}
		for user := range 20 {
			catchUp("hostile", strconv.Itoa(user))
		}
		want(catchUps/2, 0)
		catchUp("other", "anna")
		want(catchUps/2, 1)
		close(held.open)
		streams.Wait()
	})
}

func hubHandler(calls Calls) *handler {
	log := slog.New(slog.DiscardHandler)
	return &handler{
		Config: Config{Calls: calls, Log: log}, hub: newFeedHub(calls, log), catchingUp: newSlots("", catchUps, 0),
	}
}

// followed begins to follow the feed behind an entry; it ends with ctx. What it has written is complete then.
func followed(ctx context.Context, t *testing.T, h *handler, after string) (written func() string) {
	w := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reader, leave := h.hub.follow("t")
		defer leave()
		by := share.Owner{Tenant: "t"}
		f := &feedFollower{handler: h, reader: reader, by: by, after: after, out: ssewriter.New(w)}
		if err := f.writeAll(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() string {
		<-ended
		return w.Body.String()
	}
}

func wantIDs(t *testing.T, text string, first, last int) {
	t.Helper()
	var got, want []string
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			got = append(got, strings.TrimSpace(id))
		}
	}
	for i := first; i <= last; i++ {
		want = append(want, fmt.Sprintf("%d-0", i))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("wrote %d entries, want those from %d to %d: %.200v", len(got), first, last, got)
	}
}

// However many streams follow a feed, it is read once; each begins where its client was, and misses nothing, also when
// the store is away for a while.
func TestOneReaderForAllStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := newTape(1000)
		h := hubHandler(feed)
		ctx, cancel := context.WithCancel(t.Context())
		var streams []func() string
		for range 100 {
			streams = append(streams, followed(ctx, t, h, "1000-0"))
		}
		old, oldest := followed(ctx, t, h, "700-0"), followed(ctx, t, h, "")
		time.Sleep(time.Second)
		feed.add(50)
		time.Sleep(time.Second)
		feed.setAway(true)
		feed.add(50)
		time.Sleep(5 * time.Second)
		feed.setAway(false)
		time.Sleep(5 * time.Second)
		late := followed(ctx, t, h, "1020-0")
		time.Sleep(time.Second)
		cancel()
		for _, written := range streams {
			wantIDs(t, written(), 1001, 1100)
		}
		wantIDs(t, old(), 701, 1100)
		wantIDs(t, oldest(), 1, 1100)
		wantIDs(t, late(), 1021, 1100)
		if feed.asked > 60 {
			t.Errorf("the store was asked %d times for 103 streams", feed.asked)
		}
		if len(h.hub.readers) != 0 {
			t.Error("the reader goes on although nobody follows")
		}
	})
}

// A stream that does not keep up is cut off; the others do not wait for it, and what is kept for it is bounded.
func TestASlowStreamIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := newTape(0)
		h := hubHandler(feed)
		reader, leave := h.hub.follow("t")
		defer leave()
		synctest.Wait()
		at, ok, _ := reader.place("")
		if !ok {
			t.Fatal("the reader has not begun")
		}
		for range 60 {
			feed.add(500)
			time.Sleep(time.Second)
		}
		if reader.bytes > hubBytes || reader.bytes < hubBytes/2 {
			t.Errorf("%d bytes are kept", reader.bytes)
		}
		if _, ok, _ := reader.from(at, feedWrite); ok {
			t.Error("who has read nothing is not told that entries are gone")
		}
		if entries, ok, _ := reader.from(reader.dropped, feedWrite); !ok || len(entries) == 0 ||
			len(entries) == len(reader.kept) {
			t.Errorf("%d entries are written at once, %v", len(entries), ok)
		}
	})
}

// One identity cannot take the places of others, with whatever credentials it comes. An app's backend holds the
// streamed turns of all its users.
func TestSlotsOfAnIdentity(t *testing.T) {
	s := newSlots("event streams", 20, 4)
	var release []func()
	take := func(by share.Owner, want bool) {
		t.Helper()
		r, err := s.enter(by)
		if (err == nil) != want {
			t.Fatalf("a place: %v", err)
		}
		if err == nil {
			release = append(release, r)
		}
	}
	of := func(user, credential string, issued int64) share.Owner {
		id := auth.Identity{Tenant: "acme", User: user, Credential: credential, Issued: time.Unix(issued, 0)}
		return id.Owner()
	}
	for i := range 8 {
		take(of("one", fmt.Sprintf("jwt:%d", i), int64(i)), i < 4)
	}
	for i := range 6 {
		take(of("", fmt.Sprintf("jwt:%d", i), int64(i)), i < 4)
	}
	take(share.Owner{Tenant: "acme"}, true) // streamed turns
	take(share.Owner{Tenant: "acme"}, true)
	take(of("", "key:other", 0), false) // the tenant has its share
	release[0]()
	take(of("", "key:other", 0), true)
	take(share.Owner{Tenant: "globex"}, true)
	for _, r := range release {
		r()
	}
	if left := s.pool.Stats(); left.Held != 0 {
		t.Errorf("%d places are not given back", left.Held)
	}
}
