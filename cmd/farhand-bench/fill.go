package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
)

// phantom is a pod that exists in Redis only: its sessions have no sockets. It fills Redis as real pods would, but much
// faster than over sockets.
type phantom struct {
	conn  *redisstore.Conn
	store *redisstore.Store
	id    string
	die   func() // lets the lease expire, as if the pod was killed; waits for the heartbeats to end
}

// fillers is how many sessions are written concurrently.
const fillers = 64

// startPhantom takes a lease and keeps it until die is called.
func startPhantom(ctx context.Context, url, id string, lease time.Duration) (*phantom, error) {
	// Its sessions are not refreshed, so they need a long TTL.
	conn, err := redisstore.Dial(ctx, redisstore.Options{
		URL: url, Limits: registry.Limits{SessionTTL: 10 * time.Minute, PodLease: lease},
	})
	if err != nil {
		return nil, err
	}
	p := &phantom{conn: conn, store: conn.Store(), id: id}
	if _, err := p.store.Heartbeat(ctx, id); err != nil {
		_ = conn.Close()
		return nil, err
	}
	beats, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	p.die = func() { cancel(); done.Wait() }
	done.Go(func() {
		tick := time.NewTicker(lease / 10)
		defer tick.Stop()
		for {
			select {
			case <-beats.Done():
				return
			case <-tick.C:
				_, _ = p.store.Heartbeat(beats, id) // one heartbeat more or less does not matter
			}
		}
	})
	return p, nil
}

// fill opens sessions with the given tools.
func (p *phantom) fill(ctx context.Context, o *options, sessions int, specs []registry.ToolSpec) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(fillers)
	for i := range sessions {
		if i%1000 == 0 {
			o.Note("filling Redis: %d of %d sessions", i, sessions)
		}
		work.Go(func() error { return p.open(ctx, fmt.Sprintf("%s-%d", p.id, i), specs) })
	}
	return work.Wait()
}

func (p *phantom) open(ctx context.Context, session string, specs []registry.ToolSpec) error {
	claim, err := p.store.Claim(ctx, registry.Session{
		Key: registry.Key{Tenant: registry.DefaultTenant, Session: session}, Pod: p.id,
		DeviceID: "device-" + session, DeviceName: "Phone", UserID: "user-" + session, Platform: "android",
	})
	if err != nil {
		return err
	}
	return p.store.SetTools(ctx, claim.Session, specs)
}

func (p *phantom) close() error {
	p.die()
	return p.conn.Close()
}

// phoneSpecs returns n tools such as a phone offers.
func phoneSpecs(n int) ([]registry.ToolSpec, error) {
	specs := make([]registry.ToolSpec, n)
	for i := range specs {
		var err error
		specs[i], err = registry.ToolSpec{
			Name:        fmt.Sprintf("phone_tool_%02d", i),
			Description: fmt.Sprintf("Tool %d of a phone: reads something and returns it.", i),
			Parameters: json.RawMessage(`{"type":"object","properties":{"what":{"type":"string"},` +
				`"limit":{"type":"integer","minimum":1}},"required":["what"]}`),
		}.Normalize()
		if err != nil {
			return nil, err
		}
	}
	return specs, nil
}
