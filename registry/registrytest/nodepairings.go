package registrytest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/registry"
)

// askingNode returns a request of a node with a device id of its own.
func (f *fixture) askingNode() registry.Pairing {
	p := f.asking()
	p.DeviceID = strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")
	p.Digest = ""
	return f.asVersion(p)
}

// asVersion returns a node's request with a new id and code.
func (f *fixture) asVersion(p registry.Pairing) registry.Pairing {
	p.Code = uuid.NewString()
	p.ID, p.CodeDigest = registry.NodePairingID(p.DeviceID, p.Code[:8]), "code-"+p.Code
	return p
}

func (f *fixture) askAsNode(p registry.Pairing) registry.Pairing {
	f.Helper()
	made, err := f.store.AskPairing(f.ctx, p, pairingTTL, time.Hour)
	if err != nil {
		f.Fatalf("ask as a node: %v", err)
	}
	return made
}

// renewedPairing returns a request with that life that was asked for again for three times its life. It starts anew if
// the machine stalled, because a request may be gone if nothing renewed it in its life.
func (f *fixture) renewedPairing(life time.Duration) registry.Pairing {
	for range 20 {
		if made, stalled := f.renewPairing(life); !stalled {
			return made
		}
	}
	f.Fatal("the machine stalls in each life of a request")
	return registry.Pairing{}
}

// renewPairing reports with stalled that two requests were too far apart to prove anything.
func (f *fixture) renewPairing(life time.Duration) (made registry.Pairing, stalled bool) {
	made, err := f.store.AskPairing(f.ctx, f.askingNode(), life, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	end, last := time.Now().Add(3*life), time.Now()
	for time.Now().Before(end) {
		again, err := f.store.AskPairing(f.ctx, f.asVersion(made), life, time.Hour)
		if time.Since(last) > life/2 {
			return made, true
		}
		if err != nil || again.ID != made.ID {
			f.Fatalf("%+v, %v", again, err)
		}
		last = time.Now()
		time.Sleep(life / 10)
	}
	p, err := f.store.PairingByCode(f.ctx, made.CodeDigest, f.guess(100)) // one that stalled counts as wrong
	if time.Since(last) > life/2 {
		return made, true
	}
	if err != nil || p.ID != made.ID {
		f.Errorf("by its code: %+v, %v", p, err)
	}
	return made, false
}

var nodePairingTests = []subtest{
	{name: "a node that asks again has the same request", run: func(f *fixture) {
		made := f.askAsNode(f.askingNode())
		var others atomic.Int64
		f.together(func(ctx context.Context) {
			again, err := f.store.AskPairing(ctx, f.asVersion(made), pairingTTL, time.Hour)
			if err != nil || again.ID != made.ID || again.Code != made.Code {
				others.Add(1)
			}
		})
		found, err := f.store.NodePairing(f.ctx, made.DeviceID)
		if others.Load() != 0 || err != nil || found.ID != made.ID || found.Code != made.Code {
			f.Errorf("%d others, %+v, %v", others.Load(), found, err)
		}
		if waiting, err := f.store.Pairings(f.ctx, f.tenant); err != nil || len(waiting) != 1 {
			f.Errorf("waiting: %+v, %v", waiting, err)
		}
		similar := made.DeviceID[:len(made.DeviceID)-1] + "x"
		if _, err := f.store.NodePairing(f.ctx, similar); !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("a device id with the same beginning: %v", err)
		}
	}},
	{name: "a node that asks again renews its request, for some time", run: func(f *fixture) {
		made := f.renewedPairing(200 * time.Millisecond)
		later, err := f.store.AskPairing(f.ctx, f.asVersion(made), pairingTTL, 100*time.Millisecond)
		if err != nil || later.ID == made.ID || !later.CreatedAt.After(made.CreatedAt) {
			f.Errorf("after its longest life: %+v, %v", later, err)
		}
	}},
	{name: "a node that asks for something else supersedes its request", run: func(f *fixture) {
		first := f.askAsNode(f.askingNode())
		changed := f.asVersion(first)
		changed.Tools = []string{"photo", "run"}
		second := f.askAsNode(changed)
		if second.ID != changed.ID {
			f.Fatalf("not superseded: %+v", second)
		}
		_, byID := f.store.Pairing(f.ctx, first.ID)
		_, byCode := f.store.PairingByCode(f.ctx, first.CodeDigest, f.guess(2))
		_, decided := f.store.DecidePairing(f.ctx, first.ID, registry.PairingDecision{Approved: true}, pairingTTL)
		for what, err := range map[string]error{"id": byID, "code": byCode, "decision": decided} {
			if !errors.Is(err, registry.CodeNotFound) {
				f.Errorf("by %s: %v", what, err)
			}
		}
		if waiting, err := f.store.Pairings(f.ctx, f.tenant); err != nil || len(waiting) != 1 {
			f.Errorf("waiting: %+v, %v", waiting, err)
		}
		for range registry.MaxPairingsOfSource - 1 {
			f.askAsNode(f.askingNode())
		}
		_, err := f.store.AskPairing(f.ctx, f.askingNode(), pairingTTL, time.Hour)
		if !errors.Is(err, registry.ErrPairingsFull) {
			f.Errorf("one more: %v", err)
		}
		third := f.asVersion(second)
		third.Tools = []string{"photo"}
		if got := f.askAsNode(third); got.ID != third.ID {
			f.Errorf("superseded at the limit: %+v", got)
		}
	}},
	{name: "a decided request of a node stays, and is collected once", run: func(f *fixture) {
		made := f.askAsNode(f.askingNode())
		approved := registry.PairingDecision{Approved: true, Tenant: f.tenant, By: "token"}
		if _, err := f.store.DecidePairing(f.ctx, made.ID, approved, pairingTTL); err != nil {
			f.Fatal(err)
		}
		other := f.asVersion(made)
		other.Tools = nil
		if stays := f.askAsNode(other); stays.ID != made.ID || stays.Decision == nil {
			f.Errorf("stays: %+v", stays)
		}
		var taken atomic.Int64
		f.together(func(ctx context.Context) {
			p, err := f.store.CollectPairing(ctx, made.ID, uuid.NewString(), pairingTTL)
			if err == nil && p.Decision.Tenant == f.tenant {
				taken.Add(1)
			} else if !errors.Is(err, registry.CodeNotFound) {
				f.Errorf("collect: %+v, %v", p, err)
			}
		})
		found, err := f.store.NodePairing(f.ctx, made.DeviceID)
		if taken.Load() != 1 || err != nil || found.Collected == "" {
			f.Errorf("collected %d times: %+v, %v", taken.Load(), found, err)
		}
		if next := f.askAsNode(other); next.ID != other.ID || next.Decision != nil || next.Collected != "" {
			f.Errorf("asks again: %+v", next)
		}
	}},
	{name: "a setup code is for one device", run: func(f *fixture) {
		made, err := f.store.CreateSetup(f.ctx, f.setup(), pairingTTL)
		if err != nil || made.ExpiresAt.Sub(made.CreatedAt) != pairingTTL {
			f.Fatalf("%+v, %v", made, err)
		}
		var used atomic.Int64
		f.together(func(ctx context.Context) {
			got, err := f.store.UseSetup(ctx, made.Digest, uuid.NewString())
			if err == nil && got.Tenant == f.tenant && got.Tools == nil {
				used.Add(1)
			} else if !errors.Is(err, registry.CodeNotFound) {
				f.Errorf("use: %+v, %v", got, err)
			}
		})
		if used.Load() != 1 {
			f.Errorf("used %d times", used.Load())
		}
		second, err := f.store.CreateSetup(f.ctx, f.setup(), pairingTTL)
		if err != nil {
			f.Fatal(err)
		}
		for range 2 {
			if _, err := f.store.UseSetup(f.ctx, second.Digest, "node"); err != nil {
				f.Errorf("the same device: %v", err)
			}
		}
		f.must(f.store.PairSetup(f.ctx, second.Digest, "c1"))
		if got, err := f.store.UseSetup(f.ctx, second.Digest, "node"); err != nil || got.Credential != "c1" {
			f.Errorf("after the node was paired: %+v, %v", got, err)
		}
		f.must(f.store.PairSetup(f.ctx, second.Digest, ""))
		if got, err := f.store.UseSetup(f.ctx, second.Digest, "node"); err != nil || got.Credential != "" {
			f.Errorf("before the node is paired again: %+v, %v", got, err)
		}
		f.must(f.store.VoidSetups(f.ctx, f.tenant, "another node"))
		if _, err := f.store.UseSetup(f.ctx, second.Digest, "node"); err != nil {
			f.Errorf("after another node's codes were voided: %v", err)
		}
		f.wantCode(f.store.PairSetup(f.ctx, "unknown", "c1"), registry.CodeNotFound)
		if _, err := f.store.UseSetup(f.ctx, "unknown", "node"); !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("an unknown code: %v", err)
		}
		for range registry.MaxSetupsOfApprover - 2 {
			if _, err := f.store.CreateSetup(f.ctx, f.setup(), pairingTTL); err != nil {
				f.Fatal(err)
			}
		}
		if _, err := f.store.CreateSetup(f.ctx, f.setup(), pairingTTL); !errors.Is(err, registry.ErrManySetups) {
			f.Errorf("one more: %v", err)
		}
		f.must(f.store.VoidSetups(f.ctx, f.tenant, "node")) // makes room
		if _, err := f.store.UseSetup(f.ctx, second.Digest, "node"); !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("a void code: %v", err)
		}
		if _, err := f.store.CreateSetup(f.ctx, f.setup(), pairingTTL); err != nil {
			f.Errorf("in place of a void one: %v", err)
		}
		another := f.setup()
		another.ByUser = "bob"
		if _, err := f.store.CreateSetup(f.ctx, another, pairingTTL); err != nil {
			f.Errorf("of another approver: %v", err)
		}
	}},
}

func (f *fixture) setup() registry.Setup {
	return registry.Setup{Digest: uuid.NewString(), Tenant: f.tenant, By: "key:a", ByUser: "ann"}
}
