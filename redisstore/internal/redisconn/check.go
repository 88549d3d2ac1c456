package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// check looks at every server that takes writes.
func (c *Conn) check(ctx context.Context) error {
	var mu sync.Mutex
	seen := make(map[string]bool)
	return c.EachMaster(ctx, func(ctx context.Context, server redis.Cmdable) error {
		info, err := serverInfo(ctx, server)
		if err != nil {
			return err
		}
		if err := checkServer(info, c.IsCluster()); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, w := range serverWarnings(info) {
			if !seen[w] {
				seen[w] = true
				c.warnings = append(c.warnings, w)
			}
		}
		return nil
	})
}

// serverInfo reads what a server says about itself; an empty map when it does not let us ask.
func serverInfo(ctx context.Context, server redis.Cmdable) (map[string]string, error) {
	info := make(map[string]string)
	for _, section := range []string{"server", "memory"} {
		text, err := server.Info(ctx, section).Result()
		if redis.HasErrorPrefix(err, "NOPERM") {
			return info, nil
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
	}
	return info, nil
}

// checkServer refuses servers that cannot work at all.
func checkServer(info map[string]string, cluster bool) error {
	if version := info["redis_version"]; version != "" {
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err != nil || n < 7 {
			return fmt.Errorf("the server is version %s; 7.0 or later is needed", version)
		}
	}
	if info["redis_mode"] == "cluster" && !cluster {
		return errors.New("the server is a member of a cluster: add ?cluster=true to the URL, or name several members")
	}
	return nil
}

// serverWarnings finds settings that lose data under memory pressure.
func serverWarnings(info map[string]string) []string {
	if len(info) == 0 {
		return []string{"Redis does not let this user read INFO: its version and its eviction policy were not checked."}
	}
	limit, policy := info["maxmemory"], info["maxmemory_policy"]
	if limit != "" && limit != "0" && policy != "" && policy != "noeviction" {
		return []string{fmt.Sprintf("Redis has a memory limit and maxmemory-policy %s: it may evict live sessions. "+
			"Set it to noeviction.", policy)}
	}
	return nil
}
