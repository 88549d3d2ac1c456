package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// shape is one way to ask another pod and get its answer, both pods in this process. Each has clients of its own, as two
// pods would have.
type shape interface {
	// open returns a caller. Callers of one shape run concurrently.
	open(i int) (caller, error)
	close()
}

const (
	shapeTimeout = 10 * time.Second // for one answer; only a broken shape needs as long
	shapePayload = 64               // bytes a call carries each way, beside its id
	replyBatch   = 256              // answers taken off a list at once, as our own pods do
)

// unique makes a name of Redis that no other shape of this run uses: shapes that are compared live side by side.
func unique(name string) string { return "bench:" + name + ":" + strconv.FormatUint(nonces.Add(1), 36) }

// codec is how a shape writes a message: the id of a call, where its answer goes, and a JSON body.
type codec struct {
	pack   func(id uint64, replyTo string, body []byte) []byte
	unpack func(message string) (id uint64, replyTo string, body []byte)
}

// jsonCodec is what anybody would write: one JSON object, encoding/json. It is what the bare shape is measured with.
var jsonCodec = codec{
	pack: func(id uint64, replyTo string, body []byte) []byte {
		text, _ := json.Marshal(jsonMessage{id, replyTo, body}) // cannot fail: the body is JSON of our own
		return text
	},
	unpack: func(message string) (uint64, string, []byte) {
		var m jsonMessage
		_ = json.Unmarshal([]byte(message), &m) // a broken one finds no caller
		return m.ID, m.ReplyTo, m.Body
	},
}

type jsonMessage struct {
	ID      uint64          `json:"id"`
	ReplyTo string          `json:"reply_to,omitempty"`
	Body    json.RawMessage `json:"body"`
}

// rawCodec writes next to nothing: it shows what of a figure is encoding.
var rawCodec = codec{
	pack: func(id uint64, _ string, body []byte) []byte {
		return append(binary.BigEndian.AppendUint64(nil, id), body...)
	},
	unpack: func(message string) (uint64, string, []byte) {
		return binary.BigEndian.Uint64([]byte(message[:8])), "", []byte(message[8:])
	},
}

// pending finds the callers that wait, by the id of their call.
type pending struct {
	mu   sync.Mutex
	next uint64
	byID map[uint64]chan []byte
}

func newPending() *pending { return &pending{byID: make(map[uint64]chan []byte)} }

func (p *pending) add(ch chan []byte) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.byID[p.next] = ch
	return p.next
}

// resolve hands over an answer.
func (p *pending) resolve(id uint64, body []byte) {
	p.mu.Lock()
	ch := p.byID[id]
	delete(p.byID, id)
	p.mu.Unlock()
	if ch != nil {
		ch <- body
	}
}

// shapeCaller asks by handing a call to send. The other side gives its body back.
type shapeCaller struct {
	pending *pending
	send    func(id uint64, body []byte) error
	answer  chan []byte
	body    []byte
	timer   *time.Timer
}

// bodyText is what stands before the nonce in a body.
const bodyText = `{"text":"`

func newShapeBody() []byte {
	return []byte(bodyText + strings.Repeat("0", nonceLen) + strings.Repeat("x", shapePayload) + `"}`)
}

func newShapeCaller(p *pending, send func(id uint64, body []byte) error) *shapeCaller {
	return &shapeCaller{pending: p, send: send, answer: make(chan []byte, 1), body: newShapeBody(), timer: time.NewTimer(shapeTimeout)}
}

// call implements caller.
func (c *shapeCaller) call() string {
	body := bytes.Clone(c.body) // the client may still hold the one before
	putNonce(body[len(bodyText):])
	if err := c.send(c.pending.add(c.answer), body); err != nil {
		return "send_failed"
	}
	c.timer.Reset(shapeTimeout)
	select {
	case answer := <-c.answer:
		if !bytes.Equal(answer, body) {
			return "wrong_answer"
		}
		return ""
	case <-c.timer.C:
		return "no_answer"
	}
}

func (c *shapeCaller) close() { c.timer.Stop() }

// listener receives what is published on a channel until it is closed.
type listener struct {
	sub  *redis.PubSub
	done sync.WaitGroup
}

func listen(client *redis.Client, channel string, handle func(message string)) (*listener, error) {
	ctx, cancel := context.WithTimeout(context.Background(), shapeTimeout)
	defer cancel()
	l := &listener{sub: client.Subscribe(ctx, channel)}
	if _, err := l.sub.Receive(ctx); err != nil {
		_ = l.sub.Close()
		return nil, err
	}
	l.done.Go(func() {
		for {
			m, err := l.sub.ReceiveMessage(context.Background())
			if err != nil {
				return // closed
			}
			handle(m.Payload)
		}
	})
	return l, nil
}

func (l *listener) close() {
	_ = l.sub.Close()
	l.done.Wait()
}

// drainer takes answers off a list until it is closed.
type drainer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func drain(client *redis.Client, key string, handle func(message string)) *drainer {
	ctx, cancel := context.WithCancel(context.Background())
	d := &drainer{cancel: cancel}
	d.done.Go(func() {
		for ctx.Err() == nil {
			_, answers, err := client.BLMPop(ctx, 200*time.Millisecond, "left", replyBatch, key).Result()
			if err != nil && err != redis.Nil {
				time.Sleep(10 * time.Millisecond)
			}
			for _, answer := range answers {
				handle(answer)
			}
		}
	})
	return d
}

func (d *drainer) close() {
	d.cancel()
	d.done.Wait()
}
