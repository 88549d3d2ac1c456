package registrytest

import (
	"github.com/farhand/farhand/registry"
)

// takeoverTests are about who may have a session, and whose answers count.
var takeoverTests = []subtest{
	{name: "ids that apps choose are taken as they are", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		for _, id := range []string{"android:1", "user@host", "user+tag@host.example", "YWJj==", "a:b:c", "a~b", "5d1f-ok_.x"} {
			l := NewDevice(nil).Connect(f, a, registry.Session{Key: f.key(id)}, tool("echo", "x"))
			if res, err := f.call(b, id, "echo", `{"id":1}`, patience); err != nil || res.Output != `{"id":1}` {
				f.Errorf("%s: %+v, %v", id, res, err)
			}
			if got := names(f.list(registry.Query{})); got != id+"(echo)" {
				f.Errorf("%s is listed as %s", id, got)
			}
			l.Close(f.ctx)
			if got := names(f.list(registry.Query{})); got != "" {
				f.Errorf("%s left: %s", id, got)
			}
		}
	}},
}
