package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// An export is lines of JSON: an exportHead, then an exportRecord for each key or part of one, then an exportEnd. Keys
// expire at their time of then. What belongs to sockets and turns is not in it, nor what calls write: sessions, tools,
// calls, routes, places, rate limits, the activity feed, continuations.

// exportVersion is the version of the form. An import reads its own and all earlier ones.
const exportVersion = 1

type exportHead struct {
	Farhand string    `json:"farhand"` // "export"
	Version int       `json:"version"`
	Made    time.Time `json:"made"`
}

// exportRecord is a key, or of a sorted set or a stream a part of it.
type exportRecord struct {
	Key     string     `json:"key"`
	Expires int64      `json:"expires"` // Unix ms
	Items   [][][]byte `json:"items"`   // each: text; element; field, value; member, score; or id, field, value…
}

type exportEnd struct {
	Records int `json:"records"` // before it
}

// exportLine is any line, as it is read.
type exportLine struct {
	exportHead
	exportRecord
	Records *int `json:"records"`
}

// Exported counts keys of an export or import, by what they hold.
type Exported map[string]int

// exported are the keys that an export has.
var exported = []exportedKeys{
	{"documents", regexp.MustCompile(`^fh:\{[^{}:/]*:[^{}:/]+(/[^{}]*)?\}:doc:`), "hash", 50},
	{"documents", regexp.MustCompile(`^fh:\{[^{}:/]*:[^{}:/]+(/[^{}]*)?\}:index:`), "zset", 50},
	{"conversations", regexp.MustCompile(`^fh:\{[^{}:/]+/[^{}:/]+\}:chat$`), "list", 1},
	{"conversations", regexp.MustCompile(`^fh:\{[^{}:/]+/[^{}:/]+\}:chatmeta$`), "hash", 50},
	{"conversations", regexp.MustCompile(`^fh:\{[^{}:/]+/[^{}:/]+\}:draft$`), "string", 10},
	{"conversations", regexp.MustCompile(`^fh:\{[^{}:/]+:chats\}$`), "zset", 50},
	{"audit", regexp.MustCompile(`^fh:\{[^{}:/]+:audit\}$`), "stream", 50},
	{"usage", regexp.MustCompile(`^fh:[^{}:/]+:usage:[^{}:/]+$`), usageType, 1},
	{"revocations", regexp.MustCompile(`^fh:\{[^{}:/]+:revoked\}:[a-z]+$`), "zset", 50},
}

// usageType is a hash whose fields are independent: an import adds those that are missing.
const usageType = "rows"

// exportedKeys are keys of one form.
type exportedKeys struct {
	what string
	name *regexp.Regexp
	kind string // type in Redis
	some int    // read with one pipeline: together at most a few MB
}

// nonces are documents, but end within an hour.
var nonces = regexp.MustCompile(`^fh:\{[^{}:/]*:nonces[/}]`)

// exportedAs returns which keys a key is one of.
func exportedAs(key string) (exportedKeys, bool) {
	i := slices.IndexFunc(exported, func(k exportedKeys) bool { return k.name.MatchString(key) })
	if i < 0 || nonces.MatchString(key) {
		return exportedKeys{}, false
	}
	return exported[i], true
}

const (
	exportScan = 1000 // keys asked for at a time
	exportPart = 500  // items of a sorted set or a stream in one record
)

// Export writes what cannot be made again: credentials, pairings, grants and other documents, conversations, audit
// logs, usage and revocations. Its memory is bounded. What changes meanwhile is in it as it was before or after.
func (c *Conn) Export(ctx context.Context, w io.Writer) (Exported, error) {
	x := newExporter(c.conn, w)
	if err := x.out.Encode(exportHead{"export", exportVersion, time.Now().UTC()}); err != nil {
		return nil, err
	}
	err := c.conn.EachMaster(ctx, func(ctx context.Context, server redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := server.Scan(ctx, cursor, "fh:*", exportScan).Result()
			if err != nil {
				return redisconn.Unavailable("scan", err)
			}
			if err := x.write(ctx, keys); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return x.counts, x.out.Encode(exportEnd{x.records})
}

// exporter writes records. In a cluster several servers are scanned at a time.
type exporter struct {
	conn *redisconn.Conn

	mu      sync.Mutex
	out     *json.Encoder
	records int
	counts  Exported
	streams map[string]struct{} // written; an import could not add the entries of one again
}

func newExporter(conn *redisconn.Conn, w io.Writer) *exporter {
	x := &exporter{conn: conn, out: json.NewEncoder(w), counts: make(Exported), streams: make(map[string]struct{})}
	x.out.SetEscapeHTML(false)
	return x
}

// write writes those of the keys that are exported. A scan may return a key twice.
func (x *exporter) write(ctx context.Context, keys []string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, form := range exported {
		of := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
			as, ok := exportedAs(key)
			return !ok || as.name != form.name
		})
		for some := range slices.Chunk(of, form.some) {
			if err := x.writeSome(ctx, form, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSome reads keys of one form, and writes them.
func (x *exporter) writeSome(ctx context.Context, form exportedKeys, keys []string) error {
	pipe := x.conn.Pipeline()
	expiries, reads := make([]*redisconn.Command, len(keys)), make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		reads[i] = form.read(pipe, key, "")
		expiries[i] = pipe.Do("PEXPIRETIME", key) // last: a key that has one then was there before
	}
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	for i, key := range keys {
		r, c := exportRecord{Key: key, Expires: expiries[i].Int()}, reads[i]
		if r.Expires <= 0 {
			continue // expired meanwhile
		}
		if form.kind == "stream" {
			if _, written := x.streams[key]; written {
				continue
			}
			x.streams[key] = struct{}{}
		}
		x.counts[form.what]++
		for {
			items, after, err := form.items(c)
			if err != nil {
				return err
			}
			if r.Items = items; len(items) > 0 {
				x.records++
				if err := x.out.Encode(r); err != nil {
					return err
				}
			}
			if after == "" {
				break
			}
			more := x.conn.Pipeline()
			c = form.read(more, key, after)
			if err := more.Exec(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// read adds the command to a pipeline that reads a key, or of a large one the part after that place.
func (k exportedKeys) read(pipe *redisconn.Pipeline, key, after string) *redisconn.Command {
	switch k.kind {
	case "hash", usageType:
		return pipe.Do("HGETALL", key)
	case "list":
		return pipe.Do("LRANGE", key, 0, -1)
	case "zset":
		if after == "" {
			after = "0"
		}
		return pipe.Do("ZSCAN", key, after, "COUNT", exportPart)
	case "stream":
		if after == "" {
			return pipe.Do("XRANGE", key, "-", "+", "COUNT", exportPart)
		}
		return pipe.Do("XRANGE", key, "("+after, "+", "COUNT", exportPart)
	default:
		return pipe.Do("GET", key)
	}
}

// items returns what a command has read, and the place after which there may be more, empty if there is none.
func (k exportedKeys) items(c *redisconn.Command) (items [][][]byte, after string, err error) {
	switch k.kind {
	case "hash", usageType:
		return itemsOf(c.Strings(), 2), "", nil
	case "list":
		return itemsOf(c.Strings(), 1), "", nil
	case "zset":
		answer := c.List()
		if len(answer) != 2 {
			return nil, "", c.ErrShape()
		}
		if after = redisconn.Text(answer[0]); after == "0" {
			after = ""
		}
		return itemsOf(redisconn.Strings(answer[1]), 2), after, nil
	case "stream":
		for _, raw := range c.List() {
			entry, _ := raw.([]any)
			if len(entry) != 2 {
				return nil, "", c.ErrShape()
			}
			id := redisconn.Text(entry[0])
			texts := append([]string{id}, redisconn.Strings(entry[1])...)
			items = append(items, itemsOf(texts, len(texts))...)
			after = id
		}
		return items, after, nil
	default:
		text, ok := c.Text()
		if !ok {
			return nil, "", nil
		}
		return itemsOf([]string{text}, 1), "", nil
	}
}

// itemsOf makes items of n texts each.
func itemsOf(texts []string, n int) (items [][][]byte) {
	for some := range slices.Chunk(texts, max(n, 1)) {
		item := make([][]byte, len(some))
		for i, text := range some {
			item[i] = []byte(text)
		}
		items = append(items, item)
	}
	return items
}

// errExport is the error for a file that is no export that this release reads.
func errExport(format string, args ...any) error {
	return fmt.Errorf("this is not a whole export: "+format, args...)
}
