package redisconn

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// MaxPipeline bounds how many commands are sent before their answers are read.
const MaxPipeline = 1000

// The commands that run a script: by its hash, which a server may have forgotten, and by its source.
const (
	evalSHA    = "evalsha"
	evalSource = "eval"
)

// Command is one command or script of a pipeline, and its answer once the pipeline has been sent.
type Command struct {
	script *Script // nil for a plain command
	keys   []string
	args   []any
	cmd    *redis.Cmd
}

// once is a command the cluster client does not send again when a connection breaks: a claim must not be made twice
// and a message not delivered twice. Redirections are still followed, they say that nothing was done.
type once struct{ *redis.Cmd }

// NoRetry is asked by the client library.
func (once) NoRetry() bool { return true }

// Pipeline is a list of commands that travel together. What comes after Then takes effect after what came before it:
// on a single server one pipeline keeps the order; on a cluster, whose members answer independently, every part is
// a round trip. A pipeline is used once, by one goroutine.
type Pipeline struct {
	cluster bool
	send    sender
	parts   [][]*Command
}

// sender sends commands and returns when each has its answer or error.
type sender func(ctx context.Context, commands []redis.Cmder)

// Pipeline returns an empty pipeline.
func (c *Conn) Pipeline() *Pipeline { return c.pipelineOf(alone(c.client)) }

// SessionPipeline returns an empty pipeline for a session that is opened, changed or released. To a single server,
// those that are sent at the same time travel together.
func (c *Conn) SessionPipeline() *Pipeline { return c.pipelineOf(c.opening) }

func (c *Conn) pipelineOf(send sender) *Pipeline {
	return &Pipeline{cluster: c.IsCluster(), send: send, parts: [][]*Command{nil}}
}

// alone returns the sender of pipelines that wait for no others.
func alone(client redis.UniversalClient) sender {
	return func(ctx context.Context, commands []redis.Cmder) {
		pipe := client.Pipeline()
		_ = pipe.BatchProcess(ctx, commands...)
		_, _ = pipe.Exec(ctx) // every command has its own error
	}
}

// Do sends one command, as Pipeline.Do would, and returns it with its answer.
func (c *Conn) Do(ctx context.Context, args ...any) (*Command, error) {
	p := c.Pipeline()
	return p.Do(args...), p.Exec(ctx)
}

// Eval runs one script and returns its answer.
func (c *Conn) Eval(ctx context.Context, s *Script, keys []string, args ...any) (*Command, error) {
	p := c.Pipeline()
	return p.Eval(s, keys, args...), p.Exec(ctx)
}

// Then starts the next part. Its commands must be safe to repeat, because a part may be sent again after a server
// forgot the scripts of the part before.
func (p *Pipeline) Then() { p.parts = append(p.parts, nil) }

// Do adds a command whose first argument after the name is its key.
func (p *Pipeline) Do(args ...any) *Command { return p.add(&Command{args: args}) }

// Eval adds a script.
func (p *Pipeline) Eval(s *Script, keys []string, args ...any) *Command {
	return p.add(&Command{script: s, keys: keys, args: args})
}

func (p *Pipeline) add(c *Command) *Command {
	last := len(p.parts) - 1
	p.parts[last] = append(p.parts[last], c)
	return c
}

// Exec sends the pipeline. It returns the first error; each command keeps its own. A missing value is not an error.
func (p *Pipeline) Exec(ctx context.Context) error {
	if p.cluster {
		for _, part := range p.parts {
			p.exchange(ctx, part, evalSHA)
			if again := forgotten(part); len(again) > 0 {
				p.exchange(ctx, again, evalSource)
			}
		}
		return p.err()
	}
	var all []*Command
	for _, part := range p.parts {
		all = append(all, part...)
	}
	p.exchange(ctx, all, evalSHA)
	p.repeat(ctx)
	return p.err()
}

// repeat sends the scripts a server had forgotten, and whatever should have come after them.
func (p *Pipeline) repeat(ctx context.Context) {
	for i, part := range p.parts {
		again := forgotten(part)
		if len(again) == 0 {
			continue
		}
		for _, later := range p.parts[i+1:] {
			again = append(again, later...)
		}
		p.exchange(ctx, again, evalSource)
		return
	}
}

// forgotten returns the commands that were refused because the server does not have their script.
func forgotten(part []*Command) []*Command {
	var again []*Command
	for _, c := range part {
		if err := c.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			again = append(again, c)
		}
	}
	return again
}

// exchange sends commands and reads their answers, a bounded number at a time. eval says how scripts are sent.
func (p *Pipeline) exchange(ctx context.Context, commands []*Command, eval string) {
	for chunk := range slices.Chunk(commands, MaxPipeline) {
		batch := make([]redis.Cmder, len(chunk))
		for i, c := range chunk {
			c.cmd = c.build(ctx, eval)
			batch[i] = once{c.cmd}
		}
		p.send(ctx, batch)
	}
}

func (c *Command) build(ctx context.Context, eval string) *redis.Cmd {
	if c.script == nil {
		cmd := redis.NewCmd(ctx, c.args...)
		cmd.SetFirstKeyPos(1)
		return cmd
	}
	text := c.script.sha
	if eval == evalSource {
		text = c.script.source
	}
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, eval, text, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

func (p *Pipeline) err() error {
	for _, part := range p.parts {
		for _, c := range part {
			if err := c.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
