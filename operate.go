package farhand

import (
	"context"
	"encoding/json"
	"io"
	"runtime/metrics"
	"time"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/api/wire"
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
