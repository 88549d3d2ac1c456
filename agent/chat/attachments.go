package chat

import (
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
			l.log.Warn("file of a tool not stored", "tool", c.name, "call", c.id, "error", err)
			continue
		}
		told[i] = stored
	}
	return told
}

// forgetPictures drops the images that exceed the limits of a request, for good, because newer images follow.
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

	mu      sync.Mutex
	entries []*reading // the least recently used first
}

type reading struct {
	key     registry.Key
	origins *origins
	size    int
	used    time.Time
}

func newReadings() *readings { return &readings{seed: maphash.MakeSeed()} }

// checkOut removes and returns the entry of a conversation, for its turn until checkIn. It returns nil if there is none
// with this history. The history may lack messages at its start that the store has dropped.
func (r *readings) checkOut(key registry.Key, history []provider.Message) *origins {
	o := r.forget(key)
	if o == nil || !r.continues(o, history) {
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
	all, tenant := one.size, one.size
	for _, e := range r.entries {
		all += e.size
		if e.key.Tenant == key.Tenant {
			tenant += e.size
		}
	}
	r.entries = append(slices.DeleteFunc(r.entries, func(e *reading) bool {
		own := e.key.Tenant == key.Tenant
		evict := own && tenant > maxReadings/2 || all > maxReadings || time.Since(e.used) > readingsLife
		if evict {
			all -= e.size
		}
		if evict && own {
			tenant -= e.size
		}
		return evict
	}), one)
}

// forget removes and returns the entry of a conversation. It returns nil if there is none.
func (r *readings) forget(key registry.Key) *origins {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forgetLocked(key)
}

func (r *readings) forgetLocked(key registry.Key) *origins {
	i := slices.IndexFunc(r.entries, func(e *reading) bool { return e.key == key })
	if i < 0 {
		return nil
	}
	o := r.entries[i].origins
	r.entries = slices.Delete(r.entries, i, i+1)
	return o
}

// continues reports whether a history begins with the messages that were read, without those that the store has
// dropped. It then sets o.learned to their number.
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
