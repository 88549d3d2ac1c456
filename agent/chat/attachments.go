package chat

import (
	"container/list"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Limits of the images in one request to the model. The newest images are included.
const (
	maxPictures     = 8
	maxPictureBytes = 4 << 20
)

// picturesOf returns the images of a result that the model can see.
func picturesOf(parts []registry.Part) []provider.Picture {
	var pictures []provider.Picture
	for i, p := range parts {
		if p.Type != registry.PartImage || len(p.Data) == 0 {
			continue
		}
		if picture, ok := provider.NewPicture(i, p.Data); ok {
			pictures = append(pictures, picture)
		}
	}
	return pictures
}

// linked returns the parts of a result without data. Stored parts get an expiring link instead.
func (l *loop) linked(ctx context.Context, c *call, parts []registry.Part) []registry.Part {
	told := registry.WithoutData(parts)
	if l.files == nil {
		return told
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	for i, p := range parts {
		if len(p.Data) == 0 {
			continue
		}
		stored, err := l.files.Store(ctx, l.key, c.id, p)
		if err != nil {
			l.log.Warn("a file of a tool is not kept", "tool", c.name, "call", c.id, "error", err)
			continue
		}
		told[i] = stored
	}
	return told
}

// forgetPictures drops the images that exceed the limits of a request. They would never be included again, because
// newer images follow.
func (l *loop) forgetPictures() {
	count, size := 0, 0
	for i := range slices.Backward(l.history) {
		m := &l.history[i]
		var kept []provider.Picture
		for _, p := range slices.Backward(m.Pictures) {
			count, size = count+1, size+len(p.Data)
			if count <= maxPictures && size <= maxPictureBytes {
				kept = append(kept, p)
			}
		}
		slices.Reverse(kept)
		m.Pictures = kept
	}
}

// described returns a result with one line for each of its attachments, without their bytes.
func described(m provider.Message) provider.Message {
	lines := make([]string, 0, 1+len(m.Attachments))
	if m.Content != "" {
		lines = append(lines, m.Content)
	}
	for i, a := range m.Attachments {
		unseen := ""
		shown := slices.ContainsFunc(m.Pictures, func(p provider.Picture) bool { return p.Attachment == i })
		if a.Type == registry.PartImage && !shown {
			unseen = ", not shown"
		}
		lines = append(lines, fmt.Sprintf("[%s, %s, %s%s]", a.Type, a.MIMEType, sizeText(a.Size), unseen))
	}
	m.Content = strings.Join(lines, "\n")
	return m
}

// sizeText formats a number of bytes for people and models.
func sizeText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.0f kB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1000/1000)
	}
}

// Limits of the cache of read conversations on a pod.
const (
	maxReadings  = 64 << 20         // bytes; at most half of them for one tenant
	readingsLife = 10 * time.Minute // after the last turn
)

// readings caches where the values of conversations were seen, so that a turn reads only new messages and not the whole
// history. It only saves time: a conversation that is not cached is read again. It is safe for concurrent use.
type readings struct {
	seed maphash.Seed

	mu           sync.Mutex
	size         int
	sizeByTenant map[string]int // size by tenant
	byKey        map[registry.Key]*list.Element
	order        list.List // of *reading, the most recently used first
}

// reading is the cache entry of one conversation.
type reading struct {
	key     registry.Key
	origins *origins
	size    int
	used    time.Time
}

func newReadings() *readings {
	return &readings{
		seed: maphash.MakeSeed(), sizeByTenant: make(map[string]int), byKey: make(map[registry.Key]*list.Element),
	}
}

// checkOut removes and returns the entry of a conversation with this history, or nil if there is none. Only the turn
// has it until put is called. Messages that the store has dropped may be missing at the start of the history.
func (r *readings) checkOut(key registry.Key, history []provider.Message) *origins {
	r.mu.Lock()
	e := r.byKey[key]
	if e == nil {
		r.mu.Unlock()
		return nil
	}
	r.removeLocked(e)
	r.mu.Unlock()
	o := e.Value.(*reading).origins
	if !r.continues(o, history) {
		return nil
	}
	return o
}

// checkIn caches the origins of a conversation. It evicts the least recently used entries.
func (r *readings) checkIn(key registry.Key, o *origins) {
	one := &reading{key: key, origins: o, size: o.Size(), used: time.Now()}
	if one.size > maxReadings/2 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(key)
	var before *list.Element
	for e := r.order.Back(); e != nil; e = before {
		before = e.Prev()
		old := e.Value.(*reading)
		tenantFull := old.key.Tenant == key.Tenant && r.sizeByTenant[key.Tenant]+one.size > maxReadings/2
		if tenantFull || r.size+one.size > maxReadings || time.Since(old.used) > readingsLife {
			r.removeLocked(e)
		}
	}
	r.size += one.size
	r.sizeByTenant[key.Tenant] += one.size
	r.byKey[key] = r.order.PushFront(one)
}

// forget drops the entry of an erased conversation.
func (r *readings) forget(key registry.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(key)
}

func (r *readings) forgetLocked(key registry.Key) {
	if e := r.byKey[key]; e != nil {
		r.removeLocked(e)
	}
}

func (r *readings) removeLocked(e *list.Element) {
	one := r.order.Remove(e).(*reading)
	delete(r.byKey, one.key)
	r.size -= one.size
	if r.sizeByTenant[one.key.Tenant] -= one.size; r.sizeByTenant[one.key.Tenant] == 0 {
		delete(r.sizeByTenant, one.key.Tenant)
	}
}

// continues looks for the messages that were read at the start of a history. It reports whether all of them that the
// store still has are there. It then sets o.learned to their number.
func (r *readings) continues(o *origins, history []provider.Message) bool {
	digests := make([]uint64, min(len(history), len(o.read)))
	for i := range digests {
		digests[i] = r.digest(history[i])
	}
	for dropped := range o.read {
		if len(digests) == 0 || o.read[dropped] != digests[0] {
			continue
		}
		rest := o.read[dropped:]
		if len(rest) > len(digests) || dropped > 0 && o.Full() { // the history was rewound; or there is room now
			return false
		}
		for i := range rest {
			if rest[i] != digests[i] {
				return false
			}
		}
		o.read, o.learned = rest, len(rest)
		return true
	}
	return false
}

// digest returns a digest of a message's content. Equal messages have equal digests.
func (r *readings) digest(m provider.Message) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	say := func(text string) {
		h.WriteString(strconv.Itoa(len(text)))
		h.WriteByte(' ')
		h.WriteString(text)
	}
	for _, text := range []string{string(m.Role), m.Content, m.ToolCallID, m.ToolName, m.Source, m.Turn,
		strconv.FormatBool(m.Approved), strconv.FormatBool(m.Tainted), m.At.String()} {
		say(text)
	}
	for _, c := range m.ToolCalls {
		say(c.ID)
		say(c.Name)
		say(c.Args)
	}
	return h.Sum64()
}
