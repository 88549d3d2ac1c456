package registrytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// toolMemory is a use of a user's memory in a conversation, or of an identity's outside of conversations.
func (f *fixture) toolMemory(session, user string) registry.ToolMemoryUse {
	return registry.ToolMemoryUse{
		Key:  registry.ToolMemoryKey{Tenant: f.tenant, Session: session, Identity: user},
		User: user, Bytes: 64 << 20, Life: time.Minute,
	}
}

// memorize sets one value, and returns the error.
func (f *fixture) memorize(u registry.ToolMemoryUse, key, value string) error {
	return f.store.ChangeToolMemory(f.ctx, u, func(values map[string]json.RawMessage) error {
		values[key] = json.RawMessage(value)
		return nil
	})
}

func (f *fixture) wantMemory(u registry.ToolMemoryUse, want string) {
	f.Helper()
	values, err := f.store.ReadToolMemory(f.ctx, u)
	f.must(err)
	text, err := json.Marshal(values)
	f.must(err)
	if string(text) != want {
		f.Errorf("%+v: %s, want %s", u.Key, text, want)
	}
}

// text is a JSON string of so many bytes.
func text(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }

var toolMemoryTests = []subtest{
	{name: "values come back, for the same user, conversation and sandbox only", run: func(f *fixture) {
		u := f.toolMemory("c 1/ü", "ann")
		f.wantMemory(u, `{}`)
		f.must(f.memorize(u, "a", `{"n": 1}`))
		f.must(f.memorize(u, "b", `"ü"`))
		f.must(f.memorize(u, "a", `2`))
		f.wantMemory(u, `{"a":2,"b":"ü"}`)
		boxed, stranger := u, u
		boxed.Key.Sandboxed, stranger.Key.Tenant = true, f.tenant+"x"
		for _, other := range []registry.ToolMemoryUse{
			f.toolMemory("c 1/ü", "eve"), f.toolMemory("c", "ann"), f.toolMemory("", "ann"), boxed, stranger,
		} {
			f.wantMemory(other, `{}`)
		}
		f.must(f.store.ChangeToolMemory(f.ctx, u, func(values map[string]json.RawMessage) error {
			maps.DeleteFunc(values, func(key string, _ json.RawMessage) bool { return key == "a" })
			return nil
		}))
		f.wantMemory(u, `{"b":"ü"}`)
	}},
	{name: "a change that fails changes nothing", run: func(f *fixture) {
		u, failure := f.toolMemory("c", "ann"), errors.New("no")
		f.must(f.memorize(u, "a", `1`))
		err := f.store.ChangeToolMemory(f.ctx, u, func(values map[string]json.RawMessage) error {
			clear(values)
			return failure
		})
		if !errors.Is(err, failure) {
			f.Errorf("error %v", err)
		}
		f.wantMemory(u, `{"a":1}`)
	}},
	{name: "no concurrent change is lost", run: func(f *fixture) {
		u := f.toolMemory("c", "ann")
		together(8, func(i int) {
			if err := f.memorize(u, fmt.Sprint(i), `1`); err != nil {
				f.Error(err)
			}
		})
		if values, err := f.store.ReadToolMemory(f.ctx, u); err != nil || len(values) != 8 {
			f.Errorf("%v, %v", values, err)
		}
	}},
	{name: "a memory has so many bytes and no more", run: func(f *fixture) {
		u := f.toolMemory("c", "ann")
		f.must(f.memorize(u, "a", text(registry.MaxToolMemory-1)))
		f.wantCode(f.memorize(u, "b", text(2)), registry.CodePayloadTooLarge)
		f.must(f.memorize(u, "a", text(10)))
		f.must(f.memorize(u, "b", text(2)))
	}},
	{name: "values count as they are stored, and HTML is not longer than other text", run: func(f *fixture) {
		u := f.toolMemory("c", "ann")
		html := `"` + strings.Repeat("<", registry.MaxToolMemory-3) + `"`
		f.must(f.memorize(u, "a", " "+html+"\n"))
		values, err := f.store.ReadToolMemory(f.ctx, u)
		f.must(err)
		if got := string(values["a"]); got != html {
			f.Errorf("%d bytes of %.20q come back, want %d", len(got), got, len(html))
		}
		f.wantCode(f.memorize(u, "b", `1`), registry.CodePayloadTooLarge)
		f.wantCode(f.memorize(f.toolMemory("c", "ben"), strings.Repeat("\x01", 128), text(registry.MaxToolMemory-128)),
			registry.CodePayloadTooLarge)
	}},
	{name: "a memory can shrink at a full quota", run: func(f *fixture) {
		u := f.toolMemory("c", "ann")
		f.must(f.memorize(u, "a", text(2000)))
		u.Bytes = registry.ToolMemoryShare << 10 // lowered since
		f.must(f.memorize(u, "a", text(1900)))
		if err := f.memorize(u, "a", text(9000)); !errors.Is(err, registry.ErrManyToolMemories) {
			f.Errorf("a memory that grows: %v", err)
		}
		f.must(f.memorize(u, "a", text(900)))
		if err := f.memorize(u, "a", text(2000)); !errors.Is(err, registry.ErrManyToolMemories) {
			f.Errorf("a memory that grows again: %v", err)
		}
	}},
	{name: "conversation, user and tenant have so many bytes and no more", run: func(f *fixture) {
		// The quota of the tenant is two of its shares, and so that of one user or conversation 2 KiB.
		const quota = 2 << 10
		use := func(session, user string) registry.ToolMemoryUse {
			u := f.toolMemory(session, user)
			u.Bytes = quota * registry.ToolMemoryShare
			return u
		}
		full := func(u registry.ToolMemoryUse, bytes int) {
			f.Helper()
			if err := f.memorize(u, "a", text(bytes)); !errors.Is(err, registry.ErrManyToolMemories) {
				f.Errorf("%+v: %v", u.Key, err)
			}
		}
		f.must(f.memorize(use("c1", "ann"), "a", `1`))
		f.must(f.memorize(use("c2", "ann"), "a", `1`))
		full(use("c3", "ann"), 3)    // the user's
		full(use("c1", "ann"), 1100) // counts as 8 KiB
		f.must(f.memorize(use("c1", "ann"), "a", text(900)))
		f.must(f.memorize(use("c1", "ben"), "a", `1`))
		full(use("c1", "cem"), 3) // the conversation's
		f.must(f.store.EraseToolMemories(f.ctx, f.key("c1"), time.Minute))
		f.must(f.memorize(use("c3", "ann"), "a", `1`))
		for i := range 2*registry.ToolMemoryShare - 2 {
			f.must(f.memorize(use("", fmt.Sprint("user ", i)), "a", `1`))
		}
		full(use("", "one more"), 3) // the tenant's
		f.must(f.store.ChangeToolMemory(f.ctx, use("", "user 1"), func(values map[string]json.RawMessage) error {
			clear(values)
			return nil
		}))
		f.must(f.memorize(use("", "one more"), "a", `1`))
		other := use("", "user")
		other.Key.Tenant += "x"
		f.must(f.memorize(other, "a", `1`))
	}},
	{name: "the memories of an erased conversation are gone, and no earlier turn has one", run: func(f *fixture) {
		turn := f.begin("c", time.Minute)
		ann, ben, stays := f.toolMemory("c", "ann"), f.toolMemory("c", "ben"), f.toolMemory("c2", "ann")
		ann.Fence = turn.Fence
		for _, u := range []registry.ToolMemoryUse{ann, ben, stays} {
			f.must(f.memorize(u, "a", `1`))
		}
		f.must(errOf(f.store.EraseConversation(f.ctx, f.key("c"))))
		f.must(f.store.EraseToolMemories(f.ctx, f.key("c"), time.Minute))
		if _, err := f.store.ReadToolMemory(f.ctx, ann); !errors.Is(err, registry.ErrErased) {
			f.Errorf("read: %v", err)
		}
		if err := f.memorize(ann, "a", `2`); !errors.Is(err, registry.ErrErased) {
			f.Errorf("change: %v", err)
		}
		f.wantMemory(ben, `{}`)
		f.wantMemory(stays, `{"a":1}`)
		ann.Fence = f.begin("c", time.Minute).Fence
		f.must(f.memorize(ann, "b", `3`)) // a turn that begins after the erasure has a memory
		f.wantMemory(ann, `{"b":3}`)
		f.must(f.store.EraseToolMemories(f.ctx, f.key("c"), time.Minute))
		ann.Fence = 0
		f.wantMemory(ann, `{}`)
	}},
	{name: "a memory ends after its last use, and counts no longer", run: func(f *fixture) {
		used, unused := f.toolMemory("c", "ann"), f.toolMemory("c", "ben")
		used.Life, unused.Life, unused.Bytes = briefly, briefly, 2*registry.ToolMemoryShare<<10
		f.must(f.memorize(used, "a", `1`))
		f.must(f.memorize(unused, "a", `1`))
		used.Life = time.Minute
		f.wantMemory(used, `{"a":1}`)
		unused.Life = 0 // these reads do not extend it
		f.eventually("it has expired", func() bool {
			values, err := f.store.ReadToolMemory(f.ctx, unused)
			f.must(err)
			return len(values) == 0
		})
		f.wantMemory(used, `{"a":1}`)
		unused.Life = time.Minute
		f.must(f.memorize(unused, "a", `1`))
	}},
}
