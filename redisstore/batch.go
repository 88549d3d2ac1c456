package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// maxPipeline bounds how many commands are sent before their answers are read.
const maxPipeline = 1000

// call is one command or script of a batch, and its answer once the batch has run.
type call struct {
	script *script // nil for a plain command
	keys   []string
	args   []any
	cmd    *redis.Cmd
}

// once is a command the cluster client does not send again when a connection breaks: a claim must not be made twice
// and a message not delivered twice. Redirections are still followed, they say that nothing was done.
type once struct{ *redis.Cmd }

// NoRetry is asked by the client library.
func (once) NoRetry() bool { return true }

// batch is a list of commands that travel together. What comes after then() takes effect after what came before it:
// on a single server one pipeline keeps the order; on a cluster, whose members answer independently, every part is
// a round trip. A batch is used once, by one goroutine.
type batch struct {
	conn   *Conn
	client redis.UniversalClient
	parts  [][]*call
}

func (c *Conn) batch() *batch { return &batch{conn: c, client: c.client, parts: [][]*call{nil}} }

// sessionBatch is a batch for a session that is opened, changed or released.
func (c *Conn) sessionBatch() *batch {
	return &batch{conn: c, client: c.sessions, parts: [][]*call{nil}}
}

// then starts the next part. Its commands must be safe to repeat, because a part may run again after a server forgot
// the scripts of the part before.
func (b *batch) then() { b.parts = append(b.parts, nil) }

// do adds a command whose first argument after the name is its key.
func (b *batch) do(args ...any) *call { return b.add(&call{args: args}) }

// eval adds a script.
func (b *batch) eval(s *script, keys []string, args ...any) *call {
	return b.add(&call{script: s, keys: keys, args: args})
}

func (b *batch) add(c *call) *call {
	last := len(b.parts) - 1
	b.parts[last] = append(b.parts[last], c)
	return c
}

// run sends the batch. It returns the first error; each call keeps its own. A missing value is not an error.
func (b *batch) run(ctx context.Context) error {
	if b.conn.cluster() {
		for _, part := range b.parts {
			b.send(ctx, part)
			if again := forgotten(part); len(again) > 0 {
				b.sendSource(ctx, again)
			}
		}
		return b.err()
	}
	var all []*call
	for _, part := range b.parts {
		all = append(all, part...)
	}
	b.send(ctx, all)
	b.repeat(ctx)
	return b.err()
}

// repeat runs the scripts a server had forgotten, and whatever should have come after them.
func (b *batch) repeat(ctx context.Context) {
	for i, part := range b.parts {
		again := forgotten(part)
		if len(again) == 0 {
			continue
		}
		for _, later := range b.parts[i+1:] {
			again = append(again, later...)
		}
		b.sendSource(ctx, again)
		return
	}
}

// forgotten returns the calls that were refused because the server does not have their script.
func forgotten(part []*call) []*call {
	var again []*call
	for _, c := range part {
		if err := c.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			again = append(again, c)
		}
	}
	return again
}

func (b *batch) send(ctx context.Context, calls []*call) {
	b.pipe(ctx, calls, func(c *call) *redis.Cmd { return c.command(ctx, "evalsha") })
}

func (b *batch) sendSource(ctx context.Context, calls []*call) {
	b.pipe(ctx, calls, func(c *call) *redis.Cmd { return c.command(ctx, "eval") })
}

func (b *batch) pipe(ctx context.Context, calls []*call, build func(*call) *redis.Cmd) {
	for start := 0; start < len(calls); start += maxPipeline {
		pipe := b.client.Pipeline()
		for _, c := range calls[start:min(start+maxPipeline, len(calls))] {
			c.cmd = build(c)
			_ = pipe.Process(ctx, once{c.cmd})
		}
		_, _ = pipe.Exec(ctx) // every command has its own error
	}
}

func (c *call) command(ctx context.Context, eval string) *redis.Cmd {
	if c.script == nil {
		cmd := redis.NewCmd(ctx, c.args...)
		cmd.SetFirstKeyPos(1)
		return cmd
	}
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	if eval == "eval" {
		args = append(args, eval, c.script.source)
	} else {
		args = append(args, eval, c.script.sha)
	}
	args = append(args, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

func (b *batch) err() error {
	for _, part := range b.parts {
		for _, c := range part {
			if err := c.err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// err returns the call's own error. A missing value is not one.
func (c *call) err() error {
	if err := c.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// int returns the answer as a number, zero when it is none.
func (c *call) int() int64 { return toInt(c.cmd.Val()) }

// text returns the answer as a string and whether there was one.
func (c *call) text() (string, bool) {
	s, ok := c.cmd.Val().(string)
	return s, ok
}

// list returns the answer as a list, nil when it is none.
func (c *call) list() []any {
	l, _ := c.cmd.Val().([]any)
	return l
}

func toInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil { // a score may be printed as a float
			f, _ := strconv.ParseFloat(v, 64)
			return int64(f)
		}
		return n
	default:
		return 0
	}
}

func toStrings(v any) []string {
	l, _ := v.([]any)
	out := make([]string, len(l))
	for i, e := range l {
		out[i], _ = e.(string)
	}
	return out
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

// toMap reads a flat list of names and values.
func toMap(v any) map[string]string {
	l := toStrings(v)
	m := make(map[string]string, len(l)/2)
	for i := 0; i+1 < len(l); i += 2 {
		m[l[i]] = l[i+1]
	}
	return m
}

// errShape is returned for an answer no script of ours gives.
func errShape(c *call) error { return fmt.Errorf("unexpected answer of type %T", c.cmd.Val()) }
