package bench

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// psrpcShape does for a call what LiveKit's psrpc does, with our client library: request and reply are both published,
// and what is published while one pipeline is on its way leaves with the next; publishing waits for nobody. A message
// is wrapped twice around its payload, passes the receiver's table of subscriptions and two channels, and is
// handled in a goroutine of its own with a deadline of its own. The caller keeps two channels by the id of its request
// and waits with a deadline. Payload and outer envelope are protobuf as they are there; the envelope between the two is plain
// length-prefixed fields, which cost a little less.
type psrpcShape struct {
	asking, owning *redis.Client
	calls, replies *coalescer
	inbox, answers *psrpcInbox
	requests       string // channel
	responses      string // channel

	mu      sync.Mutex
	waiting map[string]psrpcWaiter
}

// psrpcWaiter is what a request in flight keeps: psrpc makes the channel for claims whether it needs claims or not.
type psrpcWaiter struct{ claims, response chan []byte }

const (
	psrpcDepth  = 1000 // messages a subscription buffers
	psrpcClient = "CLI_0123456789ab"
)

func newPsrpcShape(url string) (shape, error) {
	s := &psrpcShape{waiting: make(map[string]psrpcWaiter), requests: unique("requests"), responses: unique("responses")}
	var err error
	if s.asking, err = newReferenceClient(url, 8); err != nil {
		return nil, err
	}
	if s.owning, err = newReferenceClient(url, 8); err != nil {
		return nil, err
	}
	ignore := func(error) {} // its callers time out and are counted
	s.calls, s.replies = newCoalescer(s.asking, ignore), newCoalescer(s.owning, ignore)
	if s.inbox, err = newPsrpcInbox(s.owning, s.requests, func(m []byte) { go s.handle(m) }); err != nil {
		return nil, err
	}
	s.answers, err = newPsrpcInbox(s.asking, s.responses, s.resolve)
	return s, err
}

// handle is the server's part of a request.
func (s *psrpcShape) handle(message []byte) {
	fields := unpackFields(openAny(message))
	expiry, _ := strconv.ParseInt(string(fields[3]), 10, 64)
	_, cancel := context.WithDeadline(context.Background(), time.Unix(0, expiry))
	defer cancel()
	response := packFields(fields[0], []byte("NOD_0123456789ab"), decimalNow(0), packPayload(openPayload(fields[4])))
	s.replies.send("PUBLISH", s.responses, packAny("type.googleapis.com/internal.Response", response))
}

func (s *psrpcShape) resolve(message []byte) {
	fields := unpackFields(openAny(message))
	s.mu.Lock()
	w := s.waiting[string(fields[0])]
	s.mu.Unlock()
	if w.response != nil {
		w.response <- openPayload(fields[3])
	}
}

func (s *psrpcShape) open(int) (caller, error) {
	return &psrpcCaller{shape: s, body: newShapeBody()}, nil
}

func (s *psrpcShape) close() {
	s.inbox.close()
	s.answers.close()
	s.calls.close()
	s.replies.close()
	_ = s.asking.Close()
	_ = s.owning.Close()
}

// psrpcCaller is the client's part of a request.
type psrpcCaller struct {
	shape *psrpcShape
	body  []byte
}

// call implements caller.
func (c *psrpcCaller) call() string {
	s := c.shape
	body := append([]byte(nil), c.body...)
	putNonce(body[len(bodyText):])
	id := "REQ_" + strconv.FormatUint(rand.Uint64(), 36)
	request := packFields([]byte(id), []byte(psrpcClient), decimalNow(0), decimalNow(shapeTimeout), packPayload(body))
	w := psrpcWaiter{claims: make(chan []byte, psrpcDepth/10), response: make(chan []byte, 1)}
	s.mu.Lock()
	s.waiting[id] = w
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, id)
		s.mu.Unlock()
	}()
	s.calls.send("PUBLISH", s.requests, packAny("type.googleapis.com/internal.Request", request))
	ctx, cancel := context.WithTimeout(context.Background(), shapeTimeout)
	defer cancel()
	select {
	case answer := <-w.response:
		if string(answer) != string(body) {
			return "wrong_answer"
		}
		return ""
	case <-ctx.Done():
		return "no_answer"
	}
}

func (*psrpcCaller) close() {}

// psrpcInbox is a subscription as psrpc has it: the reader of the connection hands over to the subscription's channel,
// whose reader decodes and hands over to the channel of who subscribed.
type psrpcInbox struct {
	listener *listener
	raw      chan string
	decoded  chan []byte
	done     sync.WaitGroup
}

func newPsrpcInbox(client *redis.Client, channel string, handle func([]byte)) (*psrpcInbox, error) {
	in := &psrpcInbox{raw: make(chan string, psrpcDepth), decoded: make(chan []byte, psrpcDepth)}
	in.done.Go(func() {
		defer close(in.decoded)
		for m := range in.raw {
			in.decoded <- []byte(m)
		}
	})
	in.done.Go(func() {
		for m := range in.decoded {
			handle(m)
		}
	})
	var err error
	if in.listener, err = listen(client, channel, func(m string) { in.raw <- m }); err != nil {
		close(in.raw)
		return nil, err
	}
	return in, nil
}

func (in *psrpcInbox) close() {
	in.listener.close()
	close(in.raw)
	in.done.Wait()
}

// packAny wraps a message with its type.
func packAny(kind string, message []byte) []byte {
	b, _ := proto.Marshal(&anypb.Any{TypeUrl: kind, Value: message}) // cannot fail: the type is ASCII
	return b
}

func openAny(b []byte) []byte {
	var m anypb.Any
	_ = proto.Unmarshal(b, &m) // a broken one finds no caller
	return m.Value
}

// packPayload is the marshalling of what a call carries.
func packPayload(body []byte) []byte {
	b, _ := proto.Marshal(wrapperspb.Bytes(body)) // cannot fail
	return b
}

func openPayload(b []byte) []byte {
	var m wrapperspb.BytesValue
	_ = proto.Unmarshal(b, &m) // a broken one is a wrong answer
	return m.Value
}

// packFields writes fields with their lengths in front.
func packFields(fields ...[]byte) []byte {
	n := 0
	for _, f := range fields {
		n += len(f) + 2
	}
	b := make([]byte, 0, n)
	for _, f := range fields {
		b = append(binary.AppendUvarint(b, uint64(len(f))), f...)
	}
	return b
}

func unpackFields(b []byte) [][]byte {
	var fields [][]byte
	for len(b) > 0 {
		n, width := binary.Uvarint(b)
		fields = append(fields, b[width:width+int(n)])
		b = b[width+int(n):]
	}
	return fields
}

// decimalNow is the time after d, as a field.
func decimalNow(d time.Duration) []byte {
	return strconv.AppendInt(nil, time.Now().Add(d).UnixNano(), 10)
}
