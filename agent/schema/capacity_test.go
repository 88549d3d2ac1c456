package schema

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Whatever a tenant has read, checked, compiled and validated at a time, and however much more of it waits, another
// tenant's arguments are validated at once.
func TestValidationsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewValidator()
		hostile := share.Owner{Tenant: "hostile", Identity: "anna"}
		ctx, leave := context.WithCancel(t.Context())
		c := &s.capacity
		for _, p := range []*share.Pool{
			c.smallArgs, c.largeArgs, c.reading, c.checking, c.compiling, c.longChecks, c.smallOutputs, c.largeOutputs,
			c.longOutputChecks,
		} {
			part := int64(1)
			switch p {
			case c.smallArgs, c.largeArgs, c.smallOutputs, c.largeOutputs:
				part = 1 << 20
			}
			for range 200 { // those that do not fit wait
				go func() {
					if g, err := p.Acquire(ctx, hostile, part); err == nil {
						<-ctx.Done()
						g.Release()
					}
				}()
			}
			synctest.Wait()
			if st := p.Stats(); st.Waiting == 0 {
				t.Fatalf("the tenant has all that it asked for: %+v", st)
			}
		}
		spec := registry.ToolSpec{Name: "t", Parameters: json.RawMessage(`{"items":{"type":"integer"}}`)}
		args := []byte(list("1", 490_000)) // which takes long
		began := time.Now()                // of the bubble: only waiting takes time
		other := share.Owner{Tenant: "other", Identity: "ben"}
		if _, err := s.Compile(ctx, other, spec); err != nil {
			t.Error(err)
		}
		if err := s.Validate(ctx, other, spec, args, time.Time{}); err != nil {
			t.Error(err)
		}
		answer := registry.Result{Success: true, Structured: registry.MustJSON(`["a"]`)}
		if found := s.CheckOutput(ctx, other.Tenant, spec.Parameters, answer); len(found) != 1 {
			t.Errorf("an answer was not checked: %v", found)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the other tenant waited for %v", waited)
		}
		err := s.Validate(ctx, hostile, spec, args, time.Now().Add(time.Minute))
		if !errors.Is(err, registry.CodeTimeout) {
			t.Errorf("the hostile one does not wait: %v", err)
		}
		leave()
	})
}
