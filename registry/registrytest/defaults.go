package registrytest

import (
	"errors"

	"github.com/farhand/farhand/registry"
)

var defaultTests = []subtest{
	{"a user has one default device", registry.Limits{}, func(f *fixture) {
		_, err := f.store.DefaultDevice(f.ctx, f.tenant, "ann")
		f.wantNoDefault(err)
		f.wantNoDefault(f.store.DropDefaultDevice(f.ctx, f.tenant, "ann"))
		f.must(f.store.SetDefaultDevice(f.ctx, f.tenant, "ann", "phone"))
		f.must(f.store.SetDefaultDevice(f.ctx, f.tenant, "ann", "tablet"))
		f.must(f.store.SetDefaultDevice(f.ctx, f.tenant, "ben ü", "watch"))
		f.wantDefault("ann", "tablet")
		f.wantDefault("ben ü", "watch")
		_, err = f.store.DefaultDevice(f.ctx, f.tenant+"x", "ann")
		f.wantNoDefault(err)
		f.must(f.store.DropDefaultDevice(f.ctx, f.tenant, "ann"))
		_, err = f.store.DefaultDevice(f.ctx, f.tenant, "ann")
		f.wantNoDefault(err)
		f.wantDefault("ben ü", "watch")
	}},
	{"the default of an erased user is erased", registry.Limits{}, func(f *fixture) {
		f.must(f.store.SetDefaultDevice(f.ctx, f.tenant, "ann", "phone"))
		for want := 1; want >= 0; want-- {
			n, err := f.store.EraseOf(f.ctx, f.tenant, "ann", registry.PersonalDefault)
			f.must(err)
			if n != want {
				f.Errorf("erased %d, want %d", n, want)
			}
		}
		_, err := f.store.DefaultDevice(f.ctx, f.tenant, "ann")
		f.wantNoDefault(err)
	}},
}

func (f *fixture) wantNoDefault(err error) {
	f.Helper()
	if !errors.Is(err, registry.ErrNoDefault) {
		f.Errorf("%v, want %v", err, registry.ErrNoDefault)
	}
}

func (f *fixture) wantDefault(user, want string) {
	f.Helper()
	got, err := f.store.DefaultDevice(f.ctx, f.tenant, user)
	f.must(err)
	if got != want {
		f.Errorf("the default of %s is %q, want %q", user, got, want)
	}
}
