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

// CommandUse is how often a command ran in Redis, and its total time.
type CommandUse struct {
	Count  float64 `json:"count"`
	Micros float64 `json:"micros"`
}

// RedisUse is what Redis did, by Redis' name of the command. Redis counts the commands of a script separately, and
// their time also within the script. So a sum of times is never too small.
type RedisUse map[string]CommandUse

// Use returns what Redis has done since its start.
func (r *RedisProbe) Use(ctx context.Context) (RedisUse, error) {
	info, err := r.Info(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	use := make(RedisUse)
	for name, text := range info {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok {
			continue
		}
		var u CommandUse
		for field := range strings.SplitSeq(text, ",") {
			switch key, value, _ := strings.Cut(field, "="); key {
			case "calls":
				u.Count = Number(value)
			case "usec":
				u.Micros = Number(value)
			}
		}
		use[command] = u
	}
	return use, nil
}

// Since returns the difference to an earlier reading, without the commands of probes.
func (u RedisUse) Since(before RedisUse) RedisUse {
	grown := make(RedisUse)
	for name, now := range u {
		d := CommandUse{now.Count - before[name].Count, now.Micros - before[name].Micros}
		if d.Count > 0 && name != "info" && name != "ping" {
			grown[name] = d
		}
	}
	return grown
}

// add adds another reading to this one.
func (u RedisUse) add(other RedisUse) {
	for name, o := range other {
		u[name] = CommandUse{u[name].Count + o.Count, u[name].Micros + o.Micros}
	}
}
