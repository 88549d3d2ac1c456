package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/bus"
)

// Group is a kind of commands that are sent together.
type Group string

// The groups. A batch counts for the group of its first command.
const (
	GroupPublish       Group = "publish"       // messages to other pods
	GroupReply         Group = "reply"         // answers to other pods
	GroupSessions      Group = "sessions"      // sessions that open, change, are refreshed and end
	GroupListing       Group = "listing"       // sessions and tools that are looked up and listed
	GroupCalls         Group = "calls"         // records of calls
	GroupActivity      Group = "activity"      // the activity feed
	GroupConversations Group = "conversations" // what was said
	GroupPods          Group = "pods"          // leases
	GroupBudgets       Group = "budgets"       // what tenants may still add
	GroupConnection    Group = "connection"    // connections that are opened and checked
	GroupOther         Group = "other"
)

// Groups returns all groups.
func Groups() []Group {
	return []Group{
		GroupPublish, GroupReply, GroupSessions, GroupListing, GroupCalls, GroupActivity, GroupConversations, GroupPods,
		GroupBudgets, GroupConnection, GroupOther,
	}
}

// Failure is why commands failed.
type Failure string

// The failures.
const (
	FailureNone       Failure = ""
	FailureTimeout    Failure = "timeout"    // Redis did not answer in time
	FailureConnection Failure = "connection" // it could not be reached, or hung up
	FailurePool       Failure = "pool"       // no connection to it became free in time
	FailureRefused    Failure = "refused"    // it answered with an error
	FailureCancelled  Failure = "cancelled"  // the caller stopped waiting
)

// Failures returns why commands may fail.
func Failures() []Failure {
	return []Failure{FailureTimeout, FailureConnection, FailurePool, FailureRefused, FailureCancelled}
}

// Meter measures round trips. Its method returns at once and is safe for concurrent use. Reads that wait for something
// to come, and what goes over subscriptions, are not among them.
type Meter interface {
	RoundTrip(g Group, took time.Duration, failed Failure)
}

// meterHook tells a Meter of what a client sends.
type meterHook struct {
	meter  Meter
	groups map[string]Group // by SHA of a script; never changes
}

var _ redis.Hook = meterHook{}

func newMeterHook(m Meter) meterHook {
	h := meterHook{meter: m, groups: make(map[string]Group)}
	for _, s := range slices.Concat(scripts.All(), bus.Scripts().All()) {
		h.groups[s.SHA()] = groupOfScript(s.Name())
	}
	return h
}

// groupOfScript returns the group of the script in a file.
func groupOfScript(name string) Group {
	switch prefix, _, _ := strings.Cut(name, "_"); prefix {
	case "claim", "formers", "restore", "update", "set", "refresh", "release", "index", "labels", "definitions", "zrem":
		if name == "set_if" { // of an idempotency key
			return GroupCalls
		}
		return GroupSessions
	case "entry", "page":
		return GroupListing
	case "call", "del":
		return GroupCalls
	case "push":
		return GroupReply
	case "feed":
		return GroupActivity
	case "chat", "chats", "continuation":
		return GroupConversations
	case "heartbeat", "leases", "lease":
		return GroupPods
	case "spend":
		return GroupBudgets
	default:
		return GroupOther
	}
}

// group returns the group of a command.
func (h meterHook) group(cmd redis.Cmder) Group {
	switch cmd.Name() {
	case "evalsha":
		if args := cmd.Args(); len(args) > 1 {
			if sha, ok := args[1].(string); ok {
				if g, known := h.groups[sha]; known {
					return g
				}
			}
		}
		return GroupOther
	case "publish", "spublish":
		return GroupPublish
	case "hello", "auth", "select", "client", "readonly", "ping":
		return GroupConnection
	case "get", "zcard", "zscore", "zrangebylex", "hget", "hmget", "zrandmember":
		return GroupListing
	default:
		return GroupOther
	}
}

// DialHook implements redis.Hook.
func (meterHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h meterHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.meter.RoundTrip(h.group(cmd), time.Since(began), failureOf(err))
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h meterHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		if len(cmds) == 0 {
			return err
		}
		took, failed := time.Since(began), FailureNone
		for i := 0; i < len(cmds) && failed == FailureNone; i++ {
			failed = failureOf(cmds[i].Err())
		}
		h.meter.RoundTrip(h.group(cmds[0]), took, failed)
		return err
	}
}

// failureOf says why a command failed. Nothing found is no failure, and neither is a script that must be sent again.
func failureOf(err error) Failure {
	var refused redis.Error
	var network net.Error
	switch {
	case err == nil, errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "NOSCRIPT"):
		return FailureNone
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return FailurePool
	case errors.As(err, &refused):
		return FailureRefused
	case errors.Is(err, context.Canceled):
		return FailureCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return FailureTimeout
	default:
		return FailureConnection
	}
}

// PoolStats says how full a pool of connections is, and what has happened to it since Dial.
type PoolStats struct {
	Open, Idle int64         // connections
	Waits      int64         // times a command had to wait for a connection
	Waited     time.Duration // by all of them together
	Timeouts   int64         // times none became free
}

// Pools returns the pools of the connection by name: commands, and sessions for what devices that come and go cost.
func (c *Conn) Pools() map[string]PoolStats {
	commands, sessions := c.conn.Pools()
	pools := make(map[string]PoolStats, 2)
	for name, s := range map[string]*redis.PoolStats{PoolCommands: commands, PoolSessions: sessions} {
		pools[name] = PoolStats{
			Open: int64(s.TotalConns), Idle: int64(s.IdleConns), Waits: int64(s.WaitCount),
			Waited: time.Duration(s.WaitDurationNs), Timeouts: int64(s.Timeouts),
		}
	}
	return pools
}

// Names of pools.
const (
	PoolCommands = "commands"
	PoolSessions = "sessions"
)
