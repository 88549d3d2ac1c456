package registrytest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/registry"
)

var trailTests = []subtest{
	{name: "a trail is the last entries, oldest first", run: func(f *fixture) {
		for i, step := range []struct {
			entry string
			limit int
			want  string
		}{
			{"a", 3, "a"}, {"b", 3, "a b"}, {"c\x00\xff", 3, "a b c\x00\xff"}, {"d", 3, "b c\x00\xff d"},
			{"d", 3, "c\x00\xff d d"}, {"e", 1, "e"}, {"f", 0, "f"},
		} {
			if got := strings.Join(f.leave("c", step.entry, step.limit), " "); got != step.want {
				f.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		f.leave("c", "g", 9)
		for limit, want := range map[int]string{9: "f g", 2: "f g", 1: "g", 0: "", -1: ""} {
			if got := strings.Join(f.trail("c", limit), " "); got != want {
				f.Errorf("the last %d: %q, want %q", limit, got, want)
			}
		}
		f.wantConversation("c", registry.Conversation{}) // no turn, and none needed
	}},
	{name: "a trail has an end whatever the limit", run: func(f *fixture) {
		var got []string
		for i := range registry.MaxTrail + 10 {
			got = f.leave("c", fmt.Sprint(i), 1<<40)
		}
		if len(got) != registry.MaxTrail || got[0] != "10" || !slices.Equal(f.trail("c", 1<<40), got) {
			f.Errorf("%d entries from %s", len(got), got[0])
		}
	}},
	{name: "calls side by side each find their own entry last", run: func(f *fixture) {
		const calls, limit = 50, 20
		var mu sync.Mutex
		var windows [][]string
		together(calls, func(i int) {
			got, err := f.store.AppendTrail(f.ctx, f.key("c"), fmt.Sprint(i), limit)
			if err != nil || len(got) == 0 || len(got) > limit || got[len(got)-1] != fmt.Sprint(i) {
				f.Errorf("call %d: %q, %v", i, got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			windows = append(windows, got)
		})
		// All of them saw the same order: compare the results by what precedes each entry.
		before := make(map[string]string) // entry → the one before it
		for _, w := range windows {
			for i := 1; i < len(w); i++ {
				if known, ok := before[w[i]]; ok && known != w[i-1] {
					f.Fatalf("%s stands behind %s and behind %s", w[i], known, w[i-1])
				}
				before[w[i]] = w[i-1]
			}
		}
		last := f.trail("c", calls)
		if len(before) != calls-1 || len(last) != limit {
			f.Fatalf("%d entries have one before them; %d are left", len(before), len(last))
		}
		for i := 1; i < limit; i++ {
			if before[last[i]] != last[i-1] {
				f.Errorf("in the end %s stands behind %s", last[i], last[i-1])
			}
		}
	}},
}
