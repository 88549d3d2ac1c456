package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/policy"
)

// fifty is a policy of 50 rules, of which few select the call.
func fifty() []byte {
	var b strings.Builder
	b.WriteString("version: 1\ncalls:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "  - {users: user-%d, roles: caller, deny: [danger_%d_*, \"*_secret_%d\"]}\n", i, i, i)
	}
	b.WriteString("tools:\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  - {names: tool_%d_*, roles: caller, approval: outside main, calls_per_minute: 60}\n", i)
	}
	return []byte(b.String())
}

// BenchmarkDecide is what policy costs a call: remembered, and asked for the first time.
func BenchmarkDecide(b *testing.B) {
	p, err := policy.New(policy.Options{File: fifty()})
	if err != nil {
		b.Fatal(err)
	}
	who := caller
	who.User, who.Tools = "user-7", "tool_* camera.*"
	q := asked(who, "tool_17_x", "", "", false)
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.Decide(q)
		}
	})
	b.Run("remembered_parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p.Decide(q)
			}
		})
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			q.Who.User = fmt.Sprint(i)
			p.Decide(q)
		}
	})
}
