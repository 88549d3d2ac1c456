package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// MaxPipeline bounds how many commands are sent before their answers are read.
const MaxPipeline = 1000

// The commands that run a script: by its hash, which a server may have forgotten, or by its source.
const (
	evalSHA    = "evalsha"
	evalSource = "eval"
)

// Command is one command or script of a pipeline, and its answer once the pipeline has been sent.
type Command struct {
	script *Script // nil for a plain command
	args   []any   // everything that is sent; a script has scriptArgs before its keys
	cmd    *redis.Cmd
	newer  error // why the script refused what a newer release wrote; nil: it did not
}

// scriptArgs is how many arguments come before the keys of a script: the command, the script, and the number of keys.
const scriptArgs = 3

// Add adds an argument to a command that has not been sent. A text that is passed as a pointer takes no extra memory.
func (c *Command) Add(arg any) { c.args = append(c.args, arg) }

// once is a command that the cluster client does not send again when a connection breaks: a claim must not be made
// twice, and a message must not be delivered twice. Redirections are still followed, because nothing was done before
// them.
type once struct{ *redis.Cmd }

// NoRetry is called by the client library.
func (once) NoRetry() bool { return true }

// Pipeline is a list of commands that travel together. Commands after Then take effect after the commands before it. On
// a single server one pipeline keeps the order. On a cluster, whose members answer independently, every part is a round
// trip. A pipeline is used once, or again after Reset, by one goroutine.
type Pipeline struct {
	cluster bool
	forms   *Forms
	send    sender
	parts   [][]*Command
	batch   []redis.Cmder // being sent
}

// sender sends commands and returns when each has its answer or error.
type sender func(ctx context.Context, commands []redis.Cmder)

// Pipeline returns an empty pipeline.
func (c *Conn) Pipeline() *Pipeline { return c.pipelineOf(alone(c.client)) }

// SessionPipeline returns an empty pipeline that opens, changes or releases a session. On a single server, pipelines
// that are sent at the same time travel together.
func (c *Conn) SessionPipeline() *Pipeline { return c.pipelineOf(c.opening) }

func (c *Conn) pipelineOf(send sender) *Pipeline {
	return &Pipeline{cluster: c.IsCluster(), forms: c.forms, send: send, parts: [][]*Command{nil}}
}

// alone returns a sender that sends each pipeline by itself.
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

// Ask runs one script that returns a list of n elements.
func (c *Conn) Ask(ctx context.Context, s *Script, n int, keys []string, args ...any) ([]any, error) {
	command, err := c.Eval(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	parts, found, err := command.Parts(n)
	if err == nil && !found {
		err = command.ErrShape()
	}
	return parts, err
}

// Then starts the next part. Its commands must be safe to repeat, because a part may be sent again if a server has
// forgotten the scripts of the part before.
func (p *Pipeline) Then() { p.parts = append(p.parts, nil) }

// Reset empties a pipeline of one part. Commands that are added next reuse the memory of the previous ones, whose
// answers are lost.
func (p *Pipeline) Reset() { p.parts[0] = p.parts[0][:0] }

// Do adds a command whose first argument after the name is its key.
func (p *Pipeline) Do(args ...any) *Command {
	c := p.add(nil)
	c.args = append(c.args, args...)
	return c
}

// Eval adds a script.
func (p *Pipeline) Eval(s *Script, keys []string, args ...any) *Command {
	c := p.EvalKeys(s, len(keys))
	c.args = slices.Grow(c.args, len(keys)+len(args))
	for _, key := range keys {
		c.args = append(c.args, key)
	}
	c.args = append(c.args, args...)
	return c
}

// EvalKeys adds a script without its keys and arguments. The caller adds them: first as many keys as keys says.
func (p *Pipeline) EvalKeys(s *Script, keys int) *Command {
	c := p.add(s)
	c.args = append(c.args, evalSHA, s.named, keys)
	return c
}

// add adds an empty command. It reuses a command from before Reset if there is one.
func (p *Pipeline) add(s *Script) *Command {
	part := &p.parts[len(p.parts)-1]
	n := len(*part)
	if n < cap(*part) && (*part)[:n+1][n] != nil {
		*part = (*part)[:n+1]
	} else {
		*part = append(*part, new(Command))
	}
	c := (*part)[n]
	c.script, c.args, c.newer = s, c.args[:0], nil
	return c
}

// Exec sends the pipeline. It returns the first error, as one of the store; each command keeps its own. A missing value
// is not an error.
func (p *Pipeline) Exec(ctx context.Context) error {
	if !p.cluster {
		p.sendTogether(ctx, p.parts)
		return p.err()
	}
	for i := range p.parts {
		p.sendTogether(ctx, p.parts[i:i+1])
	}
	return p.err()
}

// ExecEach is Exec for commands that do not depend on each other: it does not fail because scripts refused what a newer
// release wrote. Their commands have the error.
func (p *Pipeline) ExecEach(ctx context.Context) error {
	if err := p.Exec(ctx); err == nil || !registry.IsNewer(err) {
		return err
	}
	for _, part := range p.parts {
		for _, c := range part {
			if err := c.Err(); err != nil && !registry.IsNewer(err) {
				return c.unavailable(err)
			}
		}
	}
	return nil
}

// sendTogether sends parts. It repeats the scripts that a server has forgotten, and all parts after the first of them.
func (p *Pipeline) sendTogether(ctx context.Context, parts [][]*Command) {
	all := parts[0]
	for _, part := range parts[1:] {
		all = append(slices.Clip(all), part...)
	}
	p.exchange(ctx, all, evalSHA)
	for i, part := range parts {
		if again := forgotten(part); len(again) > 0 {
			p.exchange(ctx, slices.Concat(again, slices.Concat(parts[i+1:]...)), evalSource)
			return
		}
	}
}

// forgotten returns the commands that failed because the server does not have their script.
func forgotten(part []*Command) []*Command {
	var again []*Command
	for _, c := range part {
		if err := c.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			again = append(again, c)
		}
	}
	return again
}

// exchange sends commands and reads their answers, at most MaxPipeline at a time. eval is the command that runs
// scripts.
func (p *Pipeline) exchange(ctx context.Context, commands []*Command, eval string) {
	for chunk := range slices.Chunk(commands, MaxPipeline) {
		p.batch = slices.Grow(p.batch[:0], len(chunk))
		for _, c := range chunk {
			c.build(ctx, eval)
			p.batch = append(p.batch, once{c.cmd})
		}
		p.send(ctx, p.batch)
	}
}

func (c *Command) build(ctx context.Context, eval string) {
	key := 1
	if c.script != nil {
		key = scriptArgs
		c.args[0], c.args[1] = evalSHA, c.script.named
		if eval == evalSource {
			c.args[0], c.args[1] = evalSource, c.script.source
		}
	}
	c.cmd = redis.NewCmd(ctx, c.args...)
	c.cmd.SetFirstKeyPos(int8(key))
}

func (p *Pipeline) err() error {
	var first error
	for _, part := range p.parts {
		for _, c := range part {
			err := c.Err()
			if err == nil { // reading the error's text would allocate for each command
				continue
			}
			if form, version, ok := refusedForm(err); ok {
				c.newer = p.forms.Refuse(form, version)
				err = c.newer
			}
			if first == nil {
				first = c.unavailable(err)
			}
		}
	}
	return first
}

// unavailable names an error after the command or the script, and makes it one of the store.
func (c *Command) unavailable(err error) error {
	if c.newer != nil {
		return c.newer
	}
	name, _ := c.args[0].(string)
	if c.script != nil {
		name = c.script.name
	}
	return registry.StoreUnavailable(name, err)
}

// Err returns the error of the client library, or that of a script that refused what a newer release wrote. A missing
// value is not an error.
func (c *Command) Err() error {
	if c.newer != nil {
		return c.newer
	}
	if err := c.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// Found reports whether the answer is not nil.
func (c *Command) Found() bool { return c.cmd.Val() != nil }

// Int returns the answer as a number, zero if it is not one.
func (c *Command) Int() int64 { return Int(c.cmd.Val()) }

// Text returns the answer as a string and whether there was one.
func (c *Command) Text() (string, bool) {
	s, ok := c.cmd.Val().(string)
	return s, ok
}

// List returns the answer as a list, nil if it is not one.
func (c *Command) List() []any {
	l, _ := c.cmd.Val().([]any)
	return l
}

// Parts returns the answer as a list of n elements. found is false if the list is empty, with which scripts report that
// there is nothing to return. Any other answer is an error.
func (c *Command) Parts(n int) (parts []any, found bool, err error) {
	parts, ok := c.cmd.Val().([]any)
	switch {
	case !ok:
		return nil, false, c.ErrShape()
	case len(parts) == 0:
		return nil, false, nil
	case len(parts) != n:
		return nil, false, c.ErrShape()
	}
	return parts, true, nil
}

// Strings returns the answer as a list of strings, empty if it is not one.
func (c *Command) Strings() []string { return Strings(c.cmd.Val()) }

// Map returns the answer, a flat list of names and values, as a map.
func (c *Command) Map() map[string]string { return Map(c.cmd.Val()) }

// ErrShape is the error for an answer that none of Farhand's scripts gives.
func (c *Command) ErrShape() error {
	return c.unavailable(fmt.Errorf("unexpected answer of type %T with %d elements", c.cmd.Val(), len(c.List())))
}

// Int reads an element of an answer as a number, zero if it is not one.
func Int(v any) int64 {
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

// Text reads an element of an answer as a string, empty if it is not one.
func Text(v any) string {
	s, _ := v.(string)
	return s
}

// Strings reads an element of an answer as a list of strings.
func Strings(v any) []string {
	l, _ := v.([]any)
	list := make([]string, len(l))
	for i, e := range l {
		list[i] = Text(e)
	}
	return list
}

// Map reads an element of an answer, a flat list of names and values, as a map.
func Map(v any) map[string]string {
	l := Strings(v)
	m := make(map[string]string, len(l)/2)
	for i := 0; i+1 < len(l); i += 2 {
		m[l[i]] = l[i+1]
	}
	return m
}

// Kind classifies commands, for measurements.
type Kind string

// Script is a Lua script. Each file begins with its KEYS, its ARGV and what it returns.
type Script struct {
	kind   Kind
	name   string // of the file, or of the last one
	source string
	sha    string
	named  any // sha, as an argument
}

// SHA returns the hash by which the server knows the script.
func (s *Script) SHA() string { return s.sha }

// Kind returns the kind that Must was given.
func (s *Script) Kind() Kind { return s.kind }

// Scripts are the scripts of a package. They are read when the program starts and never change.
type Scripts struct {
	files fs.FS
	all   []*Script
}

// NewScripts returns the scripts of the embedded files lua/*.lua. Must reads them.
func NewScripts(files fs.FS) *Scripts { return &Scripts{files: files} }

// All returns the scripts that Must has read.
func (s *Scripts) All() []*Script { return s.all }

// Must reads embedded files, which together are one script. It panics if a file is missing.
func (s *Scripts) Must(kind Kind, names ...string) *Script {
	var source []byte
	for _, name := range names {
		part, err := fs.ReadFile(s.files, "lua/"+name+".lua")
		if err != nil {
			panic(err)
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source)
	sha := hex.EncodeToString(sum[:])
	script := &Script{kind: kind, name: names[len(names)-1], source: string(source), sha: sha, named: sha}
	s.all = append(s.all, script)
	return script
}

// load puts all scripts into the caches of the servers. A server that restarts forgets them; Pipeline.Exec then sends
// the source.
func (s *Scripts) load(ctx context.Context, c *Conn) error {
	return c.EachMaster(ctx, func(ctx context.Context, server redis.Cmdable) error {
		for _, script := range s.all {
			if err := server.ScriptLoad(ctx, script.source).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}
