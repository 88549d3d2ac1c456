package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CommandUse is how often a command ran in Redis, and how long altogether.
type CommandUse struct {
	Count  float64 `json:"count"`
	Micros float64 `json:"micros"`
}

// RedisUse is what Redis did, by the name of the command as Redis has it. Redis counts the commands of a script both by
// themselves and, in their time, within the script: a sum of times is never too small.
type RedisUse map[string]CommandUse

// Use returns what Redis has done since it was started.
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

// Since returns what was added to an earlier reading. What probes ask is left out.
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

// Total returns all commands together.
func (u RedisUse) Total() (total CommandUse) {
	for _, c := range u {
		total.Count, total.Micros = total.Count+c.Count, total.Micros+c.Micros
	}
	return total
}

// Text renders the commands that took the most time, for each of n calls or whatever was counted.
func (u RedisUse) Text(n float64) string {
	names := slices.SortedFunc(maps.Keys(u), func(a, b string) int { return int(u[b].Micros - u[a].Micros) })
	var parts []string
	for _, name := range names[:min(len(names), 6)] {
		c := u[name]
		parts = append(parts, fmt.Sprintf("%s %.2f × %.1f µs", name, ratio(c.Count, n), ratio(c.Micros, c.Count)))
	}
	return strings.Join(parts, ", ")
}
