package registrytest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

var continuationTests = []subtest{
	{name: "what is kept comes back byte for byte", run: func(f *fixture) {
		o, odd := f.holder("ann"), []byte("\x00\xff\r\n$-1 \u2028")
		f.remember(o, "a", odd, time.Minute)
		f.remember(o, "b", []byte("2"), time.Minute)
		f.remember(o, "b", []byte("two"), time.Minute) // replaces the former
		odd[0] = 'x'                                   // the store must not share memory with callers
		f.wantKept(o, 100, map[string]string{"a": "\x00\xff\r\n$-1 \u2028", "b": "two"}, "a", "b", "never", "a")
		f.wantKept(o, 100, nil)
		f.wantKept(f.holder("nobody"), 100, nil, "a")
	}},
	{name: "tenants and users have their own", run: func(f *fixture) {
		f.remember(f.holder("ann"), "a", []byte("ann's"), time.Minute)
		for _, o := range []registry.ContinuationOwner{
			f.holder("ben"), f.holder(""), {Tenant: f.tenant + "x", User: "ann"}, {Tenant: f.tenant + "/ann"},
		} {
			f.wantKept(o, 100, nil, "a")
		}
	}},
	{name: "what matters most goes first", run: func(f *fixture) {
		o := f.holder("ann")
		for _, id := range []string{"a", "b", "c"} {
			f.remember(o, id, bytes.Repeat([]byte(id), 10), time.Minute)
		}
		f.wantKept(o, 9, nil, "a", "b")
		f.wantKept(o, 25, map[string]string{"c": "cccccccccc", "a": "aaaaaaaaaa"}, "c", "gone", "a", "b")
	}},
	{name: "a continuation is forgotten after its time", run: func(f *fixture) {
		o := f.holder("ann")
		f.remember(o, "short", []byte("1"), briefly)
		f.remember(o, "long", []byte("2"), time.Minute)
		f.eventually("the one is forgotten", func() bool { return len(f.kept(o, 100, "short")) == 0 })
		f.remember(o, "short", []byte("3"), briefly)
		f.wantKept(o, 100, map[string]string{"long": "2"}, "long")
		f.eventually("the one is forgotten again", func() bool { return len(f.kept(o, 100, "short")) == 0 })
		f.wantKept(o, 100, map[string]string{"long": "2"}, "long", "short")
	}},
	{name: "of one holder so many bytes are kept, the newest", run: func(f *fixture) {
		o, other := f.holder("ann"), f.holder("ben")
		f.remember(other, "theirs", []byte("1"), time.Minute)
		large := make([]byte, registry.MaxContinuation)
		const fit = registry.MaxHeldContinuations / (registry.MaxContinuation + registry.ContinuationOverhead)
		for i := range fit + 2 {
			f.remember(o, fmt.Sprint(i), large, time.Minute+time.Duration(i)*time.Second)
		}
		for i := range fit + 2 {
			if got, want := len(f.kept(o, 2*len(large), fmt.Sprint(i))), i >= 2; (got == 1) != want {
				f.Errorf("number %d of %d: %d kept", i, fit+2, got)
			}
		}
		f.wantKept(other, 100, map[string]string{"theirs": "1"}, "theirs")
		err := f.store.KeepContinuation(f.ctx, o, "larger", append(large, 0), time.Minute)
		f.wantCode(err, registry.CodePayloadTooLarge)
		f.wantKept(o, 100, nil, "larger")
	}},
}

func (f *fixture) holder(user string) registry.ContinuationOwner {
	return registry.ContinuationOwner{Tenant: f.tenant, User: user}
}

func (f *fixture) remember(o registry.ContinuationOwner, id string, data []byte, ttl time.Duration) {
	f.Helper()
	f.must(f.store.KeepContinuation(f.ctx, o, id, data, ttl))
}

func (f *fixture) kept(o registry.ContinuationOwner, limit int, ids ...string) map[string][]byte {
	f.Helper()
	found, err := f.store.Continuations(f.ctx, o, limit, ids...)
	f.must(err)
	return found
}

func (f *fixture) wantKept(o registry.ContinuationOwner, limit int, want map[string]string, ids ...string) {
	f.Helper()
	found := f.kept(o, limit, ids...)
	if !maps.EqualFunc(found, want, func(a []byte, b string) bool { return string(a) == b }) {
		f.Errorf("of %v of %+v: found %q, want %q", ids, o, slices.Sorted(maps.Keys(found)), want)
	}
}
