package chat

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

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

// readingKey identifies a cached conversation. A stateless caller's conversations have no names, so their first
// messages identify them.
type readingKey struct {
	registry.Key
	caller string // the scope of a stateless caller
	began  uint64 // the digest of the first two messages
}

type reading struct {
	key     readingKey
	origins *origins
	size    int
	used    time.Time
}

func newReadings() *readings { return &readings{seed: maphash.MakeSeed()} }

// keyOf returns the key of a stateless caller's conversation. It returns nil for the first message: it is read again.
func (r *readings) keyOf(tenant, caller string, history []provider.Message) *readingKey {
	if len(history) < 2 {
		return nil
	}
	return &readingKey{registry.Key{Tenant: tenant}, caller, r.digest(history[0])*31 + r.digest(history[1])}
}

// checkOut removes and returns the entry of a conversation, for its turn until checkIn. It returns nil if there is none
// with this history. The history may lack messages at its start that the store has dropped.
func (r *readings) checkOut(key readingKey, history []provider.Message) *origins {
	o := r.forget(key)
	if o == nil || !r.continues(o, history) {
		return nil
	}
	return o
}

// checkIn caches the origins of a conversation. It evicts the least recently used entries.
func (r *readings) checkIn(key readingKey, o *origins) {
	one := &reading{key: key, origins: o, size: o.size(), used: time.Now()}
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
func (r *readings) forget(key readingKey) *origins {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forgetLocked(key)
}

func (r *readings) forgetLocked(key readingKey) *origins {
	i := slices.IndexFunc(r.entries, func(e *reading) bool { return e.key == key })
	if i < 0 {
		return nil
	}
	e := r.entries[i]
	r.entries = slices.Delete(r.entries, i, i+1)
	if time.Since(e.used) > readingsLife {
		return nil
	}
	return e.origins
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

// origins records where the values of a conversation were seen, message by message. The turn's goroutine owns it.
type origins struct {
	*provenance.Conversation
	learned int                          // number of learned messages of the history
	read    []uint64                     // digests of those that are cached
	asked   map[string]provider.ToolCall // calls without a result so far

	given      bool                         // the marked point is the end of the caller's messages
	askedGiven map[string]provider.ToolCall // asked, at that point
}

// size returns the approximate memory of the origins, in bytes.
func (o *origins) size() int {
	size := o.Size() + cap(o.read)*digestSize
	for id, c := range o.asked {
		size += askedSize + len(id) + len(c.ID) + len(c.Name) + len(c.Args)
	}
	return size
}

// Approximate memory sizes, in bytes.
const (
	digestSize = 8
	askedSize  = 128 // a call without a result, besides its texts
)

// knows returns the origins of all messages so far. It starts with the cached origins of earlier turns.
func (l *loop) knows() *origins {
	if l.origins == nil {
		if l.readKey != nil {
			l.origins = l.readings.checkOut(*l.readKey, l.history)
		}
		if l.origins == nil {
			l.origins = &origins{Conversation: provenance.New(), asked: make(map[string]provider.ToolCall)}
		}
		l.origins.System("the system prompt", l.base.System)
	}
	o := l.origins
	for ; o.learned < len(l.history); o.learned++ {
		l.markGiven(o)
		m := l.history[o.learned]
		if l.readKey != nil && !o.given {
			o.read = append(o.read, l.readings.digest(m))
		}
		o.learn(m)
	}
	return o
}

// markGiven marks the end of the messages of a stateless caller. The caller may not send back what the turn adds.
func (l *loop) markGiven(o *origins) {
	if l.given > 0 && o.learned == l.given && !o.given {
		o.given, o.askedGiven = true, maps.Clone(o.asked)
		o.Mark()
	}
}

// remember caches what was read of the conversation for its next turn. For a stateless caller, this is what it sent.
// The turn has ended.
func (l *loop) remember() {
	o := l.origins
	if l.readKey == nil || o == nil {
		return
	}
	if l.given > 0 {
		l.markGiven(o)
		if o.Conversation = o.Marked(); o.Conversation == nil {
			return
		}
		o = &origins{Conversation: o.Conversation, learned: l.given, read: o.read, asked: o.askedGiven}
	}
	if o.Tainted() {
		l.readings.checkIn(*l.readKey, o)
	}
}

// learn adds a message. A model's words are no source of values, but a taint on them stays.
func (o *origins) learn(m provider.Message) {
	if m.Tainted {
		o.Taint()
	}
	switch m.Role {
	case provider.RoleUser:
		o.Add(provenance.Person, "the person", m.Content)
	case provider.RoleAssistant:
		for _, c := range m.ToolCalls {
			o.asked[c.ID] = c
		}
	case provider.RoleTool:
		if m.Approved {
			call := o.asked[m.ToolCallID]
			o.Approve(call.Name, "an approved call", json.RawMessage(call.Args))
		}
		delete(o.asked, m.ToolCallID)
		if m.Foreign() {
			o.Add(provenance.Outside, "the result of "+toolLabel(m.ToolName), m.Content)
		}
	}
}

// maxLabel is the maximum length of a tool's name in what people read, in bytes: that of names for models.
const maxLabel = 64

// toolLabel returns the name of a called tool for people. A name that no tool has is quoted: its model or a caller made
// it up.
func toolLabel(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	switch {
	case name == "":
		return "a tool"
	case len(name) > maxLabel:
		return strconv.Quote(name[:maxLabel]) + "…"
	case strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }):
		return strconv.Quote(name)
	}
	return name
}
