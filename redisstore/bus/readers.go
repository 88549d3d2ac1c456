package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// fieldReader reads the fields of a message from its beginning to its end. After a malformed field it is broken, and
// fields read as empty. The strings that it returns share the memory of the text.
type fieldReader struct {
	text   string // not read yet
	broken bool
}

func (r *fieldReader) byte() byte {
	if r.text == "" {
		r.broken = true
		return 0
	}
	c := r.text[0]
	r.text = r.text[1:]
	return c
}

func (r *fieldReader) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.broken = true
	return 0
}

// number reads a signed number, zigzag-encoded.
func (r *fieldReader) number() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *fieldReader) field() string {
	n := r.uvarint()
	if r.broken || n > uint64(len(r.text)) {
		r.broken = true
		return ""
	}
	field := r.text[:n]
	r.text = r.text[n:]
	return field
}

// fields reads a list of fields, nil if it is empty.
func (r *fieldReader) fields() []string {
	n := r.uvarint()
	if n > uint64(len(r.text)) { // each field takes at least one byte
		r.broken = true
	}
	if n == 0 || r.broken {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.field()
	}
	return list
}

// checked parses a field that is JSON. The JSON enters the pod here.
func (r *fieldReader) checked(text string) registry.JSON {
	value, err := registry.ParseJSON([]byte(text))
	r.broken = r.broken || err != nil
	return value
}

func (r *fieldReader) result() *registry.Result {
	flags := r.byte()
	result := &registry.Result{Success: flags&flagSuccess != 0, Output: r.field(), Error: r.field()}
	if flags&flagStructured != 0 {
		result.Structured = r.checked(r.field())
	}
	if flags&flagParts != 0 {
		result.Parts = r.parts()
	}
	if flags&flagURIs != 0 {
		for i := range result.Parts {
			result.Parts[i].URI = r.field()
		}
	}
	if flags&flagViolations != 0 && json.Unmarshal([]byte(r.field()), &result.Violations) != nil {
		r.broken = true
	}
	if flags&flagWithheld != 0 {
		result.Withheld = r.failure()
	}
	return result
}

// parts reads the parts of a result. There must be at least one.
func (r *fieldReader) parts() []registry.Part {
	n := r.uvarint()
	if n == 0 || n > registry.MaxParts {
		r.broken = true
	}
	if r.broken {
		return nil
	}
	parts := make([]registry.Part, n)
	for i := range parts {
		p := &parts[i]
		p.Type, p.MIMEType = registry.PartType(r.field()), r.field()
		p.Name, p.URL = r.field(), r.field()
		if data := r.field(); data != "" {
			p.Data = []byte(data)
		}
		p.Size = r.number()
	}
	return parts
}

func (r *fieldReader) failure() *registry.Error {
	var e registry.Error
	if json.Unmarshal([]byte(r.field()), &e) != nil {
		r.broken = true
	}
	return &e
}

// finished reports whether the whole message was read without an error.
func (r *fieldReader) finished() bool { return !r.broken && r.text == "" }

const (
	replyBlock = time.Second // how long one read of the reply list blocks
	replyCount = 64          // packets per pop: each is many small replies, or one of up to megabytes

	listenerPool = 2 // connections per server of a client that only listens
)

// replyReader pops packets of replies off a pod's list.
type replyReader struct {
	client  redis.UniversalClient // own client, because its connection blocks
	key     string
	timeout time.Duration // of the servers
	log     *slog.Logger
	deliver func(string)

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	failure error // of the last pop
}

func newReplyReader(conn *redisconn.Conn, key string, log *slog.Logger, deliver func(string)) *replyReader {
	r := &replyReader{
		client: conn.NewBlockingClient(listenerPool), key: key, timeout: conn.Timeout(), log: log, deliver: deliver,
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *replyReader) start() { r.done.Go(r.deliverAll) }

// deliverAll pops and delivers until the reader is closed. It retries with backoff when the connection fails.
func (r *replyReader) deliverAll() {
	for failures := 0; r.ctx.Err() == nil; {
		packets, err := r.pop()
		r.mu.Lock()
		r.failure = err
		r.mu.Unlock()
		if err == nil {
			failures = 0
			for _, payload := range packets {
				r.deliver(payload)
			}
			continue
		}
		if failures == 0 && r.ctx.Err() == nil {
			r.log.Warn("answers cannot be read", "error", err)
		}
		if !backoff(r.ctx, failures) {
			return
		}
		failures++
	}
}

// pop waits for packets, at most replyBlock. It fails soon after that if Redis hangs.
func (r *replyReader) pop() ([]string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, replyBlock+r.timeout)
	defer cancel()
	_, packets, err := r.client.BLMPop(ctx, replyBlock, "left", replyCount, r.key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return packets, err
}

func (r *replyReader) healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil {
		return fmt.Errorf("answers cannot be read: %w", r.failure)
	}
	return nil
}

// close stops reading and waits for the goroutine.
func (r *replyReader) close() error {
	r.cancel()
	err := r.client.Close()
	r.done.Wait()
	return err
}
