package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
)

// phantom is a pod that exists in Redis only: its sessions have no sockets. It fills Redis as real pods would, much
// faster than sockets could.
type phantom struct {
	conn  *redisstore.Conn
	store *redisstore.Store
	id    string
	beats context.CancelFunc
	done  sync.WaitGroup
}

// fillers is how many sessions are written at once.
const fillers = 64

// startPhantom takes a lease and keeps it until die is called.
func startPhantom(ctx context.Context, url, id string, lease time.Duration) (*phantom, error) {
	// Nobody refreshes its sessions, so they live long.
	conn, err := redisstore.Dial(ctx, redisstore.Options{URL: url, SessionTTL: 10 * time.Minute, PodLease: lease})
	if err != nil {
		return nil, err
	}
	p := &phantom{conn: conn, store: conn.Store(), id: id}
	if _, err := p.store.Heartbeat(ctx, id); err != nil {
		_ = conn.Close()
		return nil, err
	}
	beats, cancel := context.WithCancel(ctx)
	p.beats = cancel
	p.done.Go(func() {
		tick := time.NewTicker(lease / 10)
		defer tick.Stop()
		for {
			select {
			case <-beats.Done():
				return
			case <-tick.C:
				_, _ = p.store.Heartbeat(beats, id) // one beat more or less does not matter
			}
		}
	})
	return p, nil
}

// fill opens sessions with the given specifications.
func (p *phantom) fill(ctx context.Context, o *options, sessions int, specs []registry.ToolSpec) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var work sync.WaitGroup
	for range fillers {
		work.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1)
				if i > int64(sessions) {
					return
				}
				if i%1000 == 0 {
					o.Note("filling Redis: %d of %d sessions", i, sessions)
				}
				if err := p.open(ctx, fmt.Sprintf("%s-%d", p.id, i), specs); err != nil {
					cancel(err)
				}
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
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

// die lets the lease lapse, as a pod does that was killed.
func (p *phantom) die() {
	p.beats()
	p.done.Wait()
}

func (p *phantom) close() error {
	p.die()
	return errors.Join(p.conn.Close())
}

// phoneSpecs are n tools such as a phone offers.
func phoneSpecs(n int) ([]registry.ToolSpec, error) {
	specs := make([]registry.ToolSpec, n)
	for i := range specs {
		var err error
		specs[i], err = registry.ToolSpec{
			Name: fmt.Sprintf("phone_tool_%02d", i), Description: fmt.Sprintf("Tool %d of a phone: reads something and returns it.", i),
			Parameters: json.RawMessage(`{"type":"object","properties":{"what":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["what"]}`),
		}.Normalize()
		if err != nil {
			return nil, err
		}
	}
	return specs, nil
}
