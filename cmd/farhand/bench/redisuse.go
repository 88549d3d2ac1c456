package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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

// Total returns the sum over all commands.
func (u RedisUse) Total() (total CommandUse) {
	for _, c := range u {
		total.Count, total.Micros = total.Count+c.Count, total.Micros+c.Micros
	}
	return total
}

// Text renders the commands that took the most time, per each of n calls or other units.
func (u RedisUse) Text(n float64) string {
	names := slices.SortedFunc(maps.Keys(u), func(a, b string) int { return int(u[b].Micros - u[a].Micros) })
	var parts []string
	for _, name := range names[:min(len(names), 6)] {
		c := u[name]
		parts = append(parts, fmt.Sprintf("%s %.2f × %.1f µs", name, ratio(c.Count, n), ratio(c.Micros, c.Count)))
	}
	return strings.Join(parts, ", ")
}
