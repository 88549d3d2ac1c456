package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// check rejects servers that cannot work, and collects warnings.
func (c *Conn) check(ctx context.Context) error {
	var mu sync.Mutex
	return c.EachMaster(ctx, func(ctx context.Context, server redis.Cmdable) error {
		info, err := serverInfo(ctx, server)
		if err != nil {
			return err
		}
		if err := checkServer(info, c.IsCluster()); err != nil {
			return err
		}
		forgets := forgetting(ctx, server, info)
		mu.Lock()
		defer mu.Unlock()
		for _, w := range append(serverWarnings(info), forgets...) {
			if !slices.Contains(c.warnings, w) {
				c.warnings = append(c.warnings, w)
			}
		}
		return nil
	})
}

// serverInfo reads what a server reports about itself. The map is empty if the server does not permit INFO.
func serverInfo(ctx context.Context, server redis.Cmdable) (map[string]string, error) {
	info := make(map[string]string)
	for _, section := range []string{"server", "memory", "persistence"} {
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

// checkServer rejects servers that cannot work at all.
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
		return []string{"This Redis user may not run INFO: the version and the eviction policy were not checked."}
	}
	limit, policy := info["maxmemory"], info["maxmemory_policy"]
	if limit != "" && limit != "0" && policy != "" && policy != "noeviction" {
		return []string{fmt.Sprintf("Redis has a memory limit and maxmemory-policy %s: it may evict live sessions. "+
			"Set it to noeviction.", policy)}
	}
	return nil
}

// forgetting finds a server that forgets everything when it restarts. Its settings decide if they can be read, else
// what it has saved since it started.
func forgetting(ctx context.Context, server redis.Cmdable, info map[string]string) []string {
	if info["aof_enabled"] != "0" {
		return nil // it writes every change, or does not say
	}
	const advice = "If it restarts, keys, pairings, grants, conversations and the audit log are gone. " +
		"Set appendonly to yes (docs/backup.md)."
	settings, err := server.ConfigGet(ctx, "save").Result()
	switch save := strings.TrimSpace(settings["save"]); {
	case err == nil && save != "":
		return nil
	case err == nil:
		return []string{"Redis saves nothing: appendonly is no, and save is empty. " + advice}
	case info["rdb_saves"] != "" && info["rdb_saves"] != "0":
		return nil
	default:
		return []string{fmt.Sprintf("Redis may save nothing: appendonly is no, it has saved no snapshot in the %s s "+
			"since it started, and this Redis user may not read the setting save. ",
			info["uptime_in_seconds"]) + advice}
	}
}
