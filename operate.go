package farhand

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime/metrics"
	"time"

	"github.com/farhand/farhand/agent/access/erasure"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
)

// operator implements api.Operator.
type operator struct{ g *Gateway }

func (o operator) Pods(ctx context.Context) ([]registry.PodSummary, error) {
	return o.g.pod.Fleet.Ask(ctx)
}

func (o operator) PolicyFile() error {
	if o.g.policyFile == nil {
		return nil
	}
	return o.g.policyFile.Status().Err
}

func (o operator) Diagnose(ctx context.Context) []wire.Finding {
	found := Diagnose(ctx, o.g.cfg, nil, o.g.settings.program)
	all := make([]wire.Finding, len(found))
	for i, f := range found {
		all[i] = wire.Finding(f)
	}
	return all
}

func (o operator) Backup() (io.ReadCloser, int64, error) {
	if o.g.stateFile == nil {
		return nil, 0, registry.Errorf(registry.CodeNotFound, "This gateway keeps no state file.")
	}
	b, err := o.g.stateFile.Backup()
	if err != nil {
		return nil, 0, registry.StoreUnavailable("back up the state file", err)
	}
	return b, b.Size, nil
}

// readyTimeout bounds how long a summary waits for the store.
const readyTimeout = 500 * time.Millisecond

const shownTime = "2006-01-02T15:04:05.000Z"

// summary returns how this pod is, for operators: JSON of wire.PodStatus, about 2 KiB. It visits every session.
func (g *Gateway) summary(handler *api.Handler) []byte {
	routing := g.pod.Stats()
	status := wire.PodStatus{
		Version: g.settings.version, StartedAt: g.started.UTC().Format(shownTime),
		At: time.Now().UTC().Format(shownTime), Draining: g.draining.Err() != nil, Warnings: g.warnings(),
		Sessions: routing.Sessions, InProgress: routing.Pending, Streams: handler.Stats().Streams, Memory: usedMemory(),
	}
	if g.chat != nil {
		status.Turns = g.chat.Stats().Turns
	}
	if g.redis != nil {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		status.Redis = &wire.RedisStatus{Ready: g.pod.Ready(ctx) == nil}
		for _, pool := range g.redis.Pools() {
			status.Redis.Connections += pool.Open
		}
	}
	g.monitor.set.Fill(&status)
	text, err := json.Marshal(status)
	if err != nil {
		g.log.Error("summary of this pod not encoded", "error", err)
	}
	return text
}

// usedMemory returns the bytes that the process has from the system and has not returned.
func usedMemory() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// Imported says what Import did with the keys of an export, by what they hold.
type Imported = redisstore.Imported

// errNoRedis is the error for a configuration whose data is in a file.
var errNoRedis = errors.New("FARHAND_REDIS_URL is not set: this copies what is in Redis. A gateway without Redis " +
	"keeps its data in a file: curl -H \"Authorization: Bearer $FARHAND_TOKEN\" -o farhand.db URL/api/backup copies it")

// Export writes what is in Redis and cannot be made again: credentials, grants, conversations, audit logs, usage and
// revocations, of all tenants (docs/backup.md). It needs no pod, and may run beside them. It returns how many keys it
// wrote, by what they hold.
func Export(ctx context.Context, cfg Config, w io.Writer) (map[string]int, error) {
	conn, err := cfg.dialRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Export(ctx, w)
}

// CheckExport reads an export to its end, without a store. It fails if the export is not whole or of a newer release.
func CheckExport(r io.Reader) error { return redisstore.CheckExport(r) }

// Import writes an export into Redis. It can be repeated, and may run beside pods. Documents and conversations that
// have another value there stay as they are, unless overwrite is set. Check the export before.
func Import(ctx context.Context, cfg Config, r io.Reader, overwrite bool) (Imported, error) {
	conn, err := cfg.dialRedis(ctx)
	if err != nil {
		return Imported{}, err
	}
	defer conn.Close()
	return conn.Import(ctx, r, overwrite)
}

// dialRedis connects to the configured Redis alone.
func (c Config) dialRedis(ctx context.Context) (*redisstore.Conn, error) {
	if c.RedisURL == "" {
		return nil, errNoRedis
	}
	conn, err := redisstore.Dial(ctx, c.redis())
	if err != nil {
		return nil, explainRedis(err)
	}
	return conn, nil
}

func (g *Gateway) erasure(store registry.Store) *erasure.Service {
	limits := g.cfg.storeLimits().WithDefaults()
	return erasure.New(erasure.Config{
		Store: store, AuditTTL: limits.AuditTTL, ChangeTTL: limits.ChangeTTL, ActivityTTL: limits.ActivityTTL,
		HistoryTTL: limits.HistoryTTL, PlaceTTL: limits.PlaceTTL, SessionTTL: limits.SessionTTL,
		BlobTTL: g.erasedBlobs(),
	})
}

// blobMargin is how much longer than its files the erasure of a conversation is remembered: more than their uploads may
// take, and than the clocks of pods differ.
const blobMargin = time.Hour

// erasedBlobs returns how long the store remembers that the files of a conversation were erased.
func (g *Gateway) erasedBlobs() time.Duration {
	return max(g.cfg.BlobLife, blobs.DefaultLife) + blobMargin
}

// erasing returns the function that hides the files and the memories of tools before a conversation is erased. If it
// fails, the deletion fails: files would stay readable, and memories would be read in the next conversation of that
// name.
func (g *Gateway) erasing(store registry.Store) func(context.Context, registry.Key) error {
	return func(ctx context.Context, key registry.Key) error {
		if err := store.DropBlobsOf(ctx, key, g.erasedBlobs()); err != nil {
			return err
		}
		return store.EraseToolMemories(ctx, key, g.cfg.HistoryTTL)
	}
}

// Bounds of removing the rest of an erased conversation.
const (
	erasedTimeout = 5 * time.Second        // for its places, and again for the rest
	erasedPause   = 100 * time.Millisecond // between attempts
)

// erased returns the function that removes what else there is of an erased conversation. It continues after the request
// ends.
func (g *Gateway) erased(store registry.Store) func(context.Context, registry.Key) {
	again := g.erasing(store)
	return func(ctx context.Context, key registry.Key) {
		ctx = context.WithoutCancel(ctx)
		places, cancel := context.WithTimeout(ctx, erasedTimeout)
		defer cancel()
		g.pod.Places.Erased(places, key)
		// Again, for what turns and calls stored that began before the conversation was erased.
		ctx, cancel = context.WithTimeout(ctx, erasedTimeout)
		defer cancel()
		err := again(ctx, key)
		for err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(erasedPause):
				err = again(ctx, key)
			}
		}
		if err != nil {
			g.log.Warn("files and memories that tools stored during a deletion not removed; they are readable until "+
				"they expire", "session", key.Session, "error", err)
		}
	}
}
