package nodes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// moving is a directory whose devices are all expected back in a moment.
type moving []string

func (moving) List(context.Context, registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	return nil, nil, nil
}

func (m moving) Awaited(context.Context, registry.Query) (all []registry.Awaited, err error) {
	for _, session := range m {
		all = append(all, registry.Awaited{Session: registry.Session{Key: registry.Key{Tenant: "t", Session: session}}})
	}
	return all, nil
}

// While several devices are on their way to another pod, a call that names none of them is told which there are.
func TestSeveralDevicesAreExpected(t *testing.T) {
	sc := agent.SessionContext{Caller: auth.Identity{Tenant: "t", Admin: true}}
	r := reach{&Config{Directory: moving{"one", "two"}}, sc}
	_, err := r.call(t.Context(), "", "notify", registry.JSON{}, 0)
	e := registry.AsError(err)
	if !errors.Is(err, registry.CodeAmbiguousTarget) || len(e.Candidates) != 2 ||
		!strings.Contains(e.Message, "notify") {
		t.Errorf("without an id: %+v", e)
	}
	_, err = r.call(t.Context(), "twin", "notify", registry.JSON{}, 0)
	if !errors.Is(err, registry.CodeAmbiguousTarget) || !strings.Contains(err.Error(), "twin") {
		t.Errorf("with one: %v", err)
	}
}
