package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisProbe reads statistics of a Redis, on a connection of its own.
type RedisProbe struct{ Client *redis.Client }

// NewRedisProbe returns a probe of the Redis at a URL. It connects at its first command.
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

// Info returns the lines of sections of INFO.
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

// RedisLoad is what Redis has done since its start.
type RedisLoad struct {
	Commands int64 // including those of scripts
	Reads    int64 // from sockets: fewer than commands if they are pipelined
	CPU      time.Duration
	Memory   int64
	At       time.Time
}

// Load reads the current RedisLoad.
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

// Number parses a number of INFO. It returns 0 for anything else.
func Number(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return f
}
