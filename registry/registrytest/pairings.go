package registrytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/registry"
)

// pairingTTL is long enough for a test.
const pairingTTL = time.Minute

// asking returns a request that shares nothing with other tests, because stores may be shared.
func (f *fixture) asking() registry.Pairing {
	id := uuid.NewString()
	return registry.Pairing{
		ID: id, Digest: strings.Repeat("a", 64), CodeDigest: "code-" + id, Source: f.tenant, Tenant: f.tenant,
		DeviceID: "cam-1", DeviceName: "Door", Platform: "esp32", PublicKey: []byte("key"), Tools: []string{"photo"},
	}
}

func (f *fixture) requestPairing(p registry.Pairing) registry.Pairing {
	f.Helper()
	made, err := f.store.CreatePairing(f.ctx, p, pairingTTL)
	if err != nil {
		f.Fatalf("create a pairing: %v", err)
	}
	return made
}

// guess returns a limit that no other test uses.
func (f *fixture) guess(limit int) registry.Guess {
	return registry.Guess{Name: f.tenant, Limit: limit, Window: time.Minute}
}

var pairingTests = []subtest{
	{name: "a request to pair is found by its id and by its code", run: func(f *fixture) {
		made := f.requestPairing(f.asking())
		got := made.ExpiresAt.Sub(made.CreatedAt)
		if got != pairingTTL || time.Since(made.CreatedAt).Abs() > time.Minute {
			f.Errorf("made at %v, expires %v later", made.CreatedAt, got)
		}
		for name, find := range map[string]func() (registry.Pairing, error){
			"id": func() (registry.Pairing, error) { return f.store.Pairing(f.ctx, made.ID) },
			"code": func() (registry.Pairing, error) {
				return f.store.PairingByCode(f.ctx, made.CodeDigest, f.guess(1))
			},
		} {
			got, err := find()
			if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", made) {
				f.Errorf("by %s: %+v, %v, want %+v", name, got, err, made)
			}
		}
		waiting, err := f.store.Pairings(f.ctx, f.tenant)
		if err != nil || len(waiting) != 1 || waiting[0].ID != made.ID {
			f.Errorf("waiting: %+v, %v", waiting, err)
		}
		for _, tenant := range []string{f.tenant + "x", ""} {
			if others, err := f.store.Pairings(f.ctx, tenant); err != nil || len(others) != 0 {
				f.Errorf("of tenant %q: %+v, %v", tenant, others, err)
			}
		}
		if _, err := f.store.Pairing(f.ctx, "nobody"); !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("an unknown id: %v", err)
		}
	}},
	{name: "no two requests have one code, and one source has few", run: func(f *fixture) {
		first := f.requestPairing(f.asking())
		second := f.asking()
		second.CodeDigest = first.CodeDigest
		if _, err := f.store.CreatePairing(f.ctx, second, pairingTTL); !errors.Is(err, registry.ErrCodeTaken) {
			f.Errorf("the code of another: %v", err)
		}
		for range registry.MaxPairingsOfSource - 1 {
			p := f.asking()
			p.CodeDigest = "" // decided by id only: these do not collide
			f.requestPairing(p)
		}
		if _, err := f.store.CreatePairing(f.ctx, f.asking(), pairingTTL); !errors.Is(err, registry.CodeRateLimited) {
			f.Errorf("one more of the source: %v", err)
		}
	}},
	{name: "wrong codes are counted exactly, by whomever", run: func(f *fixture) {
		made := f.requestPairing(f.asking())
		var looked, refused atomic.Int64
		f.together(func(ctx context.Context) {
			for range 10 {
				_, err := f.store.PairingByCode(ctx, "wrong-"+uuid.NewString(), f.guess(20),
					registry.Guess{Name: f.tenant + "all", Limit: 1000, Window: time.Minute})
				switch {
				case errors.Is(err, registry.CodeNotFound):
					looked.Add(1)
				case errors.Is(err, registry.CodeRateLimited) && registry.AsError(err).RetryAfter > 0:
					refused.Add(1)
				default:
					f.Errorf("a wrong code: %v", err)
				}
			}
		})
		if looked.Load() != 20 || refused.Load() == 0 {
			f.Errorf("%d wrong codes were looked up, %d refused", looked.Load(), refused.Load())
		}
		_, err := f.store.PairingByCode(f.ctx, made.CodeDigest, f.guess(20))
		if !errors.Is(err, registry.CodeRateLimited) {
			f.Errorf("the right code of who guessed too often: %v", err)
		}
		other := registry.Guess{Name: f.tenant + "other", Limit: 1, Window: time.Minute}
		for range 3 { // a right code does not count as wrong
			if _, err := f.store.PairingByCode(f.ctx, made.CodeDigest, other); err != nil {
				f.Errorf("the right code: %v", err)
			}
		}
	}},
	{name: "one of many has a part of the wrong codes that are left", run: func(f *fixture) {
		made := f.requestPairing(f.asking())
		all := registry.Guess{Name: f.tenant + "/all", Limit: 40, Window: time.Minute}
		of := func(name string) registry.Guess {
			return registry.Guess{Name: f.tenant + name, Limit: 30, Window: time.Minute, Share: 2}
		}
		tries := func(who registry.Guess) (wrong int) {
			for range 40 {
				_, err := f.store.PairingByCode(f.ctx, "wrong-"+uuid.NewString(), who, all)
				if errors.Is(err, registry.CodeNotFound) {
					wrong++
				} else if !errors.Is(err, registry.CodeRateLimited) || registry.AsError(err).RetryAfter <= 0 {
					f.Errorf("a wrong code: %v", err)
				}
			}
			return wrong
		}
		if a, b, c := tries(of("a")), tries(of("b")), tries(of("c")); a != 14 || b != 9 || c != 6 {
			f.Errorf("wrong codes: %d, %d, %d", a, b, c)
		}
		if _, err := f.store.PairingByCode(f.ctx, made.CodeDigest, of("d"), all); err != nil {
			f.Errorf("the right code of another: %v", err)
		}
	}},
	{name: "one who is refused waits until every window has passed", run: func(f *fixture) {
		all := registry.Guess{Name: f.tenant + "/all", Limit: 1, Window: time.Hour}
		_, _ = f.store.PairingByCode(f.ctx, "wrong", all)
		newcomer := registry.Guess{Name: f.tenant + "new", Limit: 5, Window: time.Minute, Share: 2}
		_, err := f.store.PairingByCode(f.ctx, "wrong", newcomer, all)
		if registry.AsError(err).RetryAfter < 30*time.Minute {
			f.Errorf("nothing is left of the next guess: %v, retry after %v", err, registry.AsError(err).RetryAfter)
		}
	}},
	{name: "wrong codes are forgotten after their window", run: func(f *fixture) {
		g := registry.Guess{Name: f.tenant, Limit: 1, Window: 50 * time.Millisecond}
		_, _ = f.store.PairingByCode(f.ctx, "wrong", g)
		f.eventually("codes are looked up again", func() bool {
			_, err := f.store.PairingByCode(f.ctx, "wrong", g)
			return errors.Is(err, registry.CodeNotFound)
		})
	}},
	{name: "the first decision counts, and the code is used up", run: func(f *fixture) {
		made := f.requestPairing(f.asking())
		if _, err := f.store.TakePairing(f.ctx, made.ID); !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("a request that waits is taken: %v", err)
		}
		var won atomic.Int64
		f.together(func(ctx context.Context) {
			d := registry.PairingDecision{
				Approved: true, Tenant: f.tenant, User: uuid.NewString(), Name: "Door", Tools: []string{"photo*"},
				By: "key:1",
			}
			switch p, err := f.store.DecidePairing(ctx, made.ID, d, pairingTTL); {
			case err == nil && p.Decision.User == d.User:
				won.Add(1)
			case errors.Is(err, registry.ErrPairingDecided) && p.Decision != nil && p.Decision.User != d.User:
			default:
				f.Errorf("decide: %+v, %v", p.Decision, err)
			}
		})
		if won.Load() != 1 {
			f.Errorf("%d decisions counted", won.Load())
		}
		for range 3 { // a used code does not count as wrong
			_, err := f.store.PairingByCode(f.ctx, made.CodeDigest, f.guess(1))
			if !errors.Is(err, registry.ErrPairingDecided) {
				f.Errorf("a used code: %v", err)
			}
		}
		reused := f.asking()
		reused.CodeDigest = made.CodeDigest
		if _, err := f.store.CreatePairing(f.ctx, reused, pairingTTL); !errors.Is(err, registry.ErrCodeTaken) {
			f.Errorf("a request with a used code: %v", err)
		}
		if waiting, err := f.store.Pairings(f.ctx, f.tenant); err != nil || len(waiting) != 0 {
			f.Errorf("waiting: %+v, %v", waiting, err)
		}
		var taken atomic.Int64
		f.together(func(ctx context.Context) {
			if p, err := f.store.TakePairing(ctx, made.ID); err == nil && p.Decision.Tools[0] == "photo*" {
				taken.Add(1)
			} else if !errors.Is(err, registry.CodeNotFound) {
				f.Errorf("take: %+v, %v", p, err)
			}
		})
		if taken.Load() != 1 {
			f.Errorf("taken %d times", taken.Load())
		}
		_, err := f.store.DecidePairing(f.ctx, made.ID, registry.PairingDecision{}, pairingTTL)
		if !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("decide what was collected: %v", err)
		}
	}},
	{name: "a rejected request is not taken, and is there to tell its device", run: func(f *fixture) {
		made := f.requestPairing(f.asking())
		rejected := registry.PairingDecision{By: "token"}
		if _, err := f.store.DecidePairing(f.ctx, made.ID, rejected, pairingTTL); err != nil {
			f.Fatal(err)
		}
		if _, err := f.store.TakePairing(f.ctx, made.ID); !errors.Is(err, registry.CodeNotFound) {
			f.Errorf("take: %v", err)
		}
		if p, err := f.store.Pairing(f.ctx, made.ID); err != nil || p.Decision == nil || p.Decision.Approved {
			f.Errorf("%+v, %v", p, err)
		}
	}},
	{name: "a request to pair expires", run: func(f *fixture) {
		p := f.asking()
		if _, err := f.store.CreatePairing(f.ctx, p, 30*time.Millisecond); err != nil {
			f.Fatal(err)
		}
		f.eventually("it is gone", func() bool {
			_, byID := f.store.Pairing(f.ctx, p.ID)
			_, byCode := f.store.PairingByCode(f.ctx, p.CodeDigest)
			all, err := f.store.Pairings(f.ctx, f.tenant)
			return errors.Is(byID, registry.CodeNotFound) && errors.Is(byCode, registry.CodeNotFound) &&
				len(all) == 0 && err == nil
		})
	}},
	{name: "a nonce is taken once, by its credential", run: func(f *fixture) {
		if err := f.store.PutNonce(f.ctx, f.tenant, "k1", "n1", time.Minute); err != nil {
			f.Fatal(err)
		}
		for _, of := range [][3]string{{f.tenant, "k2", "n1"}, {f.tenant + "x", "k1", "n1"}, {f.tenant, "k1", "n2"}} {
			if ok, err := f.store.TakeNonce(f.ctx, of[0], of[1], of[2]); ok || err != nil {
				f.Errorf("the nonce of another: %v, %v", ok, err)
			}
		}
		var taken atomic.Int64
		f.together(func(ctx context.Context) {
			ok, err := f.store.TakeNonce(ctx, f.tenant, "k1", "n1")
			if err != nil {
				f.Errorf("take a nonce: %v", err)
			}
			if ok {
				taken.Add(1)
			}
		})
		if taken.Load() != 1 {
			f.Errorf("taken %d times", taken.Load())
		}
	}},
	{name: "a nonce is forgotten after its life", run: func(f *fixture) {
		if err := f.store.PutNonce(f.ctx, f.tenant, "k1", "n1", briefly); err != nil {
			f.Fatal(err)
		}
		time.Sleep(briefly) // the store's clock runs with this one
		if ok, err := f.store.TakeNonce(f.ctx, f.tenant, "k1", "n1"); ok || err != nil {
			f.Errorf("after its life: %v, %v", ok, err)
		}
	}},
	{name: "a credential has few nonces", run: func(f *fixture) {
		for i := range registry.MaxNonces + 1 {
			if err := f.store.PutNonce(f.ctx, f.tenant, "k1", fmt.Sprint(i), time.Minute); err != nil {
				f.Fatal(err)
			}
		}
		for i := range registry.MaxNonces + 1 {
			if ok, err := f.store.TakeNonce(f.ctx, f.tenant, "k1", fmt.Sprint(i)); ok != (i > 0) || err != nil {
				f.Errorf("nonce %d: %v, %v", i, ok, err)
			}
		}
	}},
	{name: "definitions of a paired device are kept, within bounds", run: func(f *fixture) {
		spec := registry.ToolSpec{Name: "photo", Description: "Takes a photo", Parameters: []byte(`{"type":"object"}`)}
		spec, err := spec.Normalize()
		if err != nil {
			f.Fatal(err)
		}
		kept := registry.DeviceTools{Waiting: []registry.ToolSpec{spec}, Pinned: []registry.ToolSpec{spec}}
		if err := f.store.SetDeviceTools(f.ctx, f.tenant, "k1", kept); err != nil {
			f.Fatal(err)
		}
		got, err := f.store.DeviceTools(f.ctx, f.tenant, "k1")
		if err != nil || len(got.Waiting) != 1 || len(got.Pinned) != 1 || got.Waiting[0].Hash() != spec.Hash() {
			f.Errorf("%+v, %v", got, err)
		}
		for _, of := range [][2]string{{f.tenant, "k2"}, {f.tenant + "x", "k1"}} {
			got, err := f.store.DeviceTools(f.ctx, of[0], of[1])
			if err != nil || len(got.Waiting)+len(got.Pinned) != 0 {
				f.Errorf("of another: %+v, %v", got, err)
			}
		}
		title := strings.Repeat("x", registry.MaxDeviceDefinitions)
		spec.Parameters = []byte(`{"type":"object","title":"` + title + `"}`)
		large := registry.DeviceTools{Waiting: []registry.ToolSpec{spec}}
		if err := f.store.SetDeviceTools(f.ctx, f.tenant, "k1", large); !errors.Is(err, registry.CodeInvalidRequest) {
			f.Errorf("too large: %v", err)
		}
	}},
	{name: "definitions that wait are bounded by tenant", run: func(f *fixture) {
		const size = registry.MaxDeviceDefinitions - 1024
		spec := registry.ToolSpec{Name: "x", Parameters: []byte(`{"title":"` + strings.Repeat("x", size) + `"}`)}
		waiting := registry.DeviceTools{Waiting: []registry.ToolSpec{spec}}
		set := func(tenant, credential string, t registry.DeviceTools) error {
			return f.store.SetDeviceTools(f.ctx, tenant, credential, t)
		}
		n := registry.MaxWaitingBytes / waiting.Size()
		for i := range n {
			f.must(set(f.tenant, fmt.Sprint(i), waiting))
		}
		if err := set(f.tenant, "more", waiting); !errors.Is(err, registry.ErrManyWaiting) {
			f.Errorf("one more: %v", err)
		}
		if got, err := f.store.DeviceTools(f.ctx, f.tenant, "more"); err != nil || got.Size() > 0 {
			f.Errorf("one more has %d bytes, %v", got.Size(), err)
		}
		f.must(set(f.tenant, "0", waiting)) // replaces its own
		f.must(set(f.tenant, "more", registry.DeviceTools{Pinned: waiting.Waiting}))
		f.must(set(f.tenant+"x", "more", waiting))
		f.must(set(f.tenant, "0", registry.DeviceTools{}))
		f.must(set(f.tenant, "more", waiting))
		if err := set(f.tenant, "0", waiting); !errors.Is(err, registry.ErrManyWaiting) {
			f.Errorf("the first again: %v", err)
		}
	}},
}

// together runs a function in several goroutines at once.
func (f *fixture) together(run func(context.Context)) {
	var wg sync.WaitGroup
	for range racers {
		wg.Go(func() { run(f.ctx) })
	}
	wg.Wait()
}
