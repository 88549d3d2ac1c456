package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisProbe asks a Redis about itself, on a connection of its own.
type RedisProbe struct{ Client *redis.Client }

// NewRedisProbe returns a probe of the Redis at a URL. It connects when it is asked something.
func NewRedisProbe(url string) (*RedisProbe, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.PoolSize, o.DisableIdentity, o.Protocol = 2, true, 2
	return &RedisProbe{Client: redis.NewClient(o)}, nil
}

// Close closes its connection.
func (r *RedisProbe) Close() { _ = r.Client.Close() }

// Info returns the lines of some sections of INFO.
func (r *RedisProbe) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := r.Client.Info(ctx, sections...).Result()
	if err != nil {
		return nil, err
	}
	lines := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			lines[name] = value
		}
	}
	return lines, nil
}

// RedisLoad is what Redis has done so far.
type RedisLoad struct {
	Commands int64 // those of scripts included
	Reads    int64 // from sockets: fewer than commands when they are pipelined
	CPU      time.Duration
	Memory   int64
	At       time.Time
}

// Load returns it.
func (r *RedisProbe) Load(ctx context.Context) (RedisLoad, error) {
	info, err := r.Info(ctx, "stats", "cpu", "memory")
	if err != nil {
		return RedisLoad{}, err
	}
	cpu := Number(info["used_cpu_user"]) + Number(info["used_cpu_sys"])
	return RedisLoad{
		Commands: int64(Number(info["total_commands_processed"])), Reads: int64(Number(info["total_reads_processed"])),
		CPU: time.Duration(cpu * float64(time.Second)), Memory: int64(Number(info["used_memory"])), At: time.Now(),
	}, nil
}

// Number reads a number of INFO; 0: it is none.
func Number(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return f
}
