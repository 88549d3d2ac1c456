package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// redisProbe is a bench.RedisProbe that also uses commands only for a Redis that this program started.
type redisProbe struct{ *bench.RedisProbe }

func newRedisProbe(url string) (*redisProbe, error) {
	p, err := bench.NewRedisProbe(url)
	return &redisProbe{p}, err
}

// memoryOfSessions returns used_memory without connected clients and the activity feed. The feed is capped for the
// whole tenant and contains nothing about sessions that stay connected.
func (r *redisProbe) memoryOfSessions(ctx context.Context) (int64, error) {
	info, err := r.Info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	memory := int64(bench.Number(info["used_memory"]) - bench.Number(info["mem_clients_normal"]))
	feed, err := r.Client.MemoryUsage(ctx, "fh:default:activity", 0).Result()
	if err != nil && err != redis.Nil {
		return 0, err
	}
	return memory - feed, nil
}

// slowerThan makes Redis log every command that takes longer, and clears the log.
func (r *redisProbe) slowerThan(ctx context.Context, limit time.Duration) error {
	for name, value := range map[string]string{
		"slowlog-log-slower-than": strconv.FormatInt(limit.Microseconds(), 10), "slowlog-max-len": "1024",
		"latency-monitor-threshold": strconv.FormatInt(max(1, limit.Milliseconds()), 10),
	} {
		if err := r.Client.ConfigSet(ctx, name, value).Err(); err != nil {
			return err
		}
	}
	if err := r.Client.Do(ctx, "LATENCY", "RESET").Err(); err != nil {
		return err
	}
	return r.Client.Do(ctx, "SLOWLOG", "RESET").Err()
}

// slowCommands are the commands that took longer than a limit.
type slowCommands struct {
	n       int
	longest time.Duration
	what    string // the longest command
}

// slow returns the commands logged since slowerThan.
func (r *redisProbe) slow(ctx context.Context) (s slowCommands, err error) {
	entries, err := r.Client.SlowLogGet(ctx, 1024).Result()
	for _, e := range entries {
		if len(e.Args) > 0 && strings.EqualFold(e.Args[0], "slowlog") {
			continue
		}
		text := strings.Join(e.Args[:min(4, len(e.Args))], " ")
		s.add(slowCommands{n: 1, longest: e.Duration, what: text[:min(len(text), 90)]})
	}
	return s, err
}

func (s *slowCommands) add(other slowCommands) {
	s.n += other.n
	if other.longest > s.longest {
		s.longest, s.what = other.longest, other.what
	}
}

// verdict is met if there are none.
func (s slowCommands) verdict(target string) verdict {
	v := verdict{What: "the same: longest command in Redis", Target: target, Met: s.n == 0, Measured: "none longer"}
	if s.n > 0 {
		v.Measured = fmt.Sprintf("%d longer, up to %s", s.n, bench.Short(s.longest))
		v.Detail = "longest command: " + s.what
	}
	return v
}

// monitor records every command sent to Redis until stop is called, which returns the count of each kind. Commands
// within scripts are not counted.
func (r *redisProbe) monitor() (stop func() map[string]int, err error) {
	conn, err := net.DialTimeout("tcp", r.Client.Options().Addr, time.Second)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		_ = conn.Close()
		return nil, err
	}
	reader := bufio.NewReaderSize(conn, 1<<16)
	line, err := reader.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+OK") {
		err = fmt.Errorf("MONITOR: %s", line)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	kinds := make(map[string]int)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if kind := commandKind(lines.Text()); kind != "" {
				kinds[kind]++
			}
		}
	}()
	return func() map[string]int {
		time.Sleep(100 * time.Millisecond) // for commands in flight
		_ = conn.Close()
		<-done
		return kinds
	}, nil
}

// commandKind parses a line of MONITOR: +time [db client] "COMMAND" "argument"... It returns the command with the kind
// of its key, or nothing for a command within a script.
func commandKind(line string) string {
	_, rest, ok := strings.Cut(line, "[")
	from, command, closed := strings.Cut(rest, "] ")
	if !ok || !closed || strings.HasSuffix(from, " lua") {
		return ""
	}
	args := strings.Split(command, `" "`)
	name := strings.ToUpper(strings.Trim(args[0], `"`))
	for _, arg := range args[1:] {
		arg = strings.Trim(arg, `"`)
		switch {
		case name == "PUBLISH" && len(args) > 2 && strings.Trim(args[2], `"`) == "P":
			return "PUBLISH of a probe"
		case strings.HasPrefix(arg, "fh:"):
			return name + " " + keyKind(arg)
		}
	}
	return name
}

// keyKind returns the purpose of a key, in the words of the layout in the documentation of package redisstore.
func keyKind(key string) string {
	rest := strings.TrimPrefix(key, "fh:")
	switch {
	case strings.HasPrefix(rest, "pod:"):
		return "channel of a pod"
	case strings.HasPrefix(rest, "{pod:") && strings.HasSuffix(rest, "}:sessions"):
		return "sessions of a pod"
	case strings.HasPrefix(rest, "{pod:"):
		return "replies"
	case strings.HasPrefix(rest, "{"):
		return "session"
	}
	_, kind, ofTenant := strings.Cut(rest, ":")
	if !ofTenant {
		return rest
	}
	kind, _, _ = strings.Cut(strings.TrimPrefix(kind, "{"), ":")
	return kind
}

// sortedKinds renders the counts of a monitor per call, most frequent first.
func sortedKinds(kinds map[string]int, calls int) string {
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return kinds[b] - kinds[a] })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %.2f", name, float64(kinds[name])/float64(calls))
	}
	return strings.Join(parts, ", ")
}

// redisTotal returns the sum over all commands.
func redisTotal(use bench.RedisUse) (total bench.CommandUse) {
	for _, c := range use {
		total.Count, total.Micros = total.Count+c.Count, total.Micros+c.Micros
	}
	return total
}

// redisText renders the commands that took the most time, per each of n calls or other units.
func redisText(use bench.RedisUse, n float64) string {
	names := slices.SortedFunc(maps.Keys(use), func(a, b string) int { return int(use[b].Micros - use[a].Micros) })
	var parts []string
	for _, name := range names[:min(len(names), 6)] {
		c := use[name]
		parts = append(parts, fmt.Sprintf("%s %.2f × %.1f µs", name, c.Count/n, c.Micros/c.Count))
	}
	return strings.Join(parts, ", ")
}
