package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// Kind classifies commands that are sent together.
type Kind = redisconn.Kind

// The kinds. A pipeline counts for the kind of its first command.
const (
	KindPublish       Kind = "publish"       // messages to other pods
	KindReply         Kind = "reply"         // answers to other pods
	KindSessions      Kind = "sessions"      // sessions that open, change, are refreshed and end
	KindListing       Kind = "listing"       // sessions and tools that are looked up and listed
	KindCalls         Kind = "calls"         // records of calls
	KindActivity      Kind = "activity"      // the activity feed
	KindConversations Kind = "conversations" // messages and turns
	KindPods          Kind = "pods"          // leases
	KindBudgets       Kind = "budgets"       // budgets of tenants
	KindApprovals     Kind = "approvals"     // approvals and grants
	KindCredentials   Kind = "credentials"   // keys, devices, pairing, wakes, and the log of changes
	KindLimits        Kind = "limits"        // rate limits of calls
	KindAudit         Kind = "audit"         // the audit log and usage
	KindConnection    Kind = "connection"    // connections that are opened and checked
	KindOther         Kind = "other"
)

// kindDocuments is the kind of scripts on documents. Their space decides which kind they count for.
const kindDocuments Kind = "documents"

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		KindPublish, KindReply, KindSessions, KindListing, KindCalls, KindActivity, KindConversations, KindPods,
		KindBudgets, KindApprovals, KindCredentials, KindLimits, KindAudit, KindConnection, KindOther,
	}
}

// Failure is why commands failed.
type Failure string

// The failures.
const (
	FailureNone       Failure = ""
	FailureTimeout    Failure = "timeout"    // Redis did not answer in time
	FailureConnection Failure = "connection" // it could not be reached, or closed the connection
	FailurePool       Failure = "pool"       // no connection to it became free in time
	FailureRefused    Failure = "refused"    // it answered with an error
	FailureCancelled  Failure = "cancelled"  // the caller stopped waiting
)

// Failures returns all reasons why commands may fail.
func Failures() []Failure {
	return []Failure{FailureTimeout, FailureConnection, FailurePool, FailureRefused, FailureCancelled}
}

// Meter measures round trips. RoundTrip must not block, and must be safe for concurrent use. It is not called for
// blocking reads and for subscriptions.
type Meter interface {
	RoundTrip(k Kind, took time.Duration, failed Failure)
}

// meterHook reports the round trips of a client to a Meter.
type meterHook struct {
	meter Meter
	kinds map[string]Kind // by SHA of a script; never changes
}

var _ redis.Hook = meterHook{}

func newMeterHook(m Meter) meterHook {
	h := meterHook{meter: m, kinds: make(map[string]Kind)}
	for _, s := range slices.Concat(scripts.All(), bus.Scripts().All()) {
		h.kinds[s.SHA()] = s.Kind()
	}
	return h
}

// kindOfSpace returns the kind of the scripts on a kind of documents.
func kindOfSpace(kind string) Kind {
	switch kind {
	case "approvals", "grants":
		return KindApprovals
	case "credentials", "pairings", "nonces", "devicetools", "waitingtools", "wakes":
		return KindCredentials
	case "blobs":
		return KindCalls
	case "toolmemory":
		return KindConversations
	case "tenants":
		return KindBudgets
	default:
		return KindOther
	}
}

// kind returns the kind of a command.
func (h meterHook) kind(cmd redis.Cmder) Kind {
	switch cmd.Name() {
	case "evalsha":
		return h.kindOfEval(cmd.Args())
	case "publish", "spublish":
		return KindPublish
	case "hello", "auth", "select", "client", "readonly", "ping":
		return KindConnection
	case "get", "zcard", "zscore", "zrangebylex", "hget", "hmget", "zrandmember":
		return KindListing
	default:
		return KindOther
	}
}

// kindOfEval returns the kind of a script with its arguments: the command, the script, the number of keys, the keys.
func (h meterHook) kindOfEval(args []any) Kind {
	if len(args) < 4 {
		return KindOther
	}
	sha, _ := args[1].(string)
	kind, known := h.kinds[sha]
	switch key, _ := args[3].(string); {
	case !known:
		return KindOther
	case kind == kindDocuments:
		return kindOfSpace(spaceKind(key))
	}
	return kind
}

func (meterHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h meterHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.meter.RoundTrip(h.kind(cmd), time.Since(began), failureOf(err))
		return err
	}
}

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
		h.meter.RoundTrip(h.kind(cmds[0]), took, failed)
		return err
	}
}

// failureOf returns why a command failed. A missing value is not a failure, and neither is a script that must be sent
// again.
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

// PoolStats has the connections of a pool, and its counters since Dial.
type PoolStats struct {
	Open, Idle int64         // connections
	Waits      int64         // times a command had to wait for a connection
	Waited     time.Duration // total of all commands
	Timeouts   int64         // times no connection became free in time
}

// Pools returns the pools of the connection by name: PoolCommands, and PoolSessions for devices that come and go.
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

// Refused returns how many stored values and messages of newer releases were not read since Dial, by kind.
func (c *Conn) Refused() map[string]int64 { return c.conn.Forms().Counts() }

// Forms returns all kinds of stored values and messages that have a version, as Refused names them.
func Forms() []string { return redisconn.FormNames() }

// Names of pools.
const (
	PoolCommands = "commands"
	PoolSessions = "sessions"
)
