package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// crash lets a number of round trips pass and fails every one after them, as if the pod had died there.
type crash struct{ left atomic.Int64 }

var errCrashed = errors.New("crashed")

// DialHook implements redis.Hook.
func (*crash) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (*crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (c *crash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.left.Add(-1) >= 0 {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errCrashed)
		}
		return errCrashed
	}
}

// TestASweepThatBreaksOffIsRepeated breaks a sweep off after each of its round trips in turn. The next one leaves no
// index with an entry of the dead pod.
func TestASweepThatBreaksOffIsRepeated(t *testing.T) {
	url, ctx := redistest.Single(t), context.Background()
	s := storeOn(t, Options{URL: url})
	dying, c := storeOn(t, Options{URL: url}), &crash{}
	dying.conn.Client().AddHook(c)
	for trips := int64(0); ; trips++ {
		if trips > 50 {
			t.Fatal("a sweep of a few sessions takes more than fifty round trips")
		}
		heartbeat(t, s, "dead")
		for i := range 4 {
			own := spec(t, "own", fmt.Sprint(i%2))
			putTools(t, s, claim(t, s, fmt.Sprintf("s%d", i), "dead"), spec(t, "camera", "x"), own)
		}
		lapse(t, s, "dead")
		c.left.Store(trips)
		_, broken := dying.Sweep(ctx)
		must[[]registry.DeadPod](t)(s.Sweep(ctx))
		for _, key := range must[[]string](t)(s.conn.Client().Keys(ctx, "*").Result()) {
			for _, index := range []string{"members:", "device:", "user:", "labels}:", "sessions"} {
				if strings.Contains(key, ":"+index) && !strings.Contains(key, ":away:") { // what is expected expires
					t.Errorf("broken off after %d round trips: %s is left", trips, key)
				}
			}
		}
		if got := grouped(t, s); got != "" {
			t.Errorf("broken off after %d round trips: groups %q", trips, got)
		}
		if broken == nil {
			return
		}
		if !errors.Is(broken, registry.CodeStoreUnavailable) {
			t.Fatal(broken)
		}
	}
}

// TestASweepSeesWhatALatePodWrote: the pod was only late, and gives a session other tools while it is being swept.
func TestASweepSeesWhatALatePodWrote(t *testing.T) {
	url, ctx := redistest.Single(t), context.Background()
	s := storeOn(t, Options{URL: url})
	heartbeat(t, s, "late")
	sess := claim(t, s, "s1", "late")
	putTools(t, s, sess, spec(t, "camera", "x"))
	lapse(t, s, "late")
	sweeper, h := storeOn(t, Options{URL: url}), &meanwhile{sha: scriptRelease.SHA()}
	h.do = func() { putTools(t, s, sess, spec(t, "mic", "x")) }
	sweeper.conn.Client().AddHook(h)
	must[[]registry.DeadPod](t)(sweeper.Sweep(ctx))
	if h.do != nil {
		t.Fatal("nothing was released")
	}
	for _, key := range must[[]string](t)(s.conn.Client().Keys(ctx, "fh:*:members:*").Result()) {
		if strings.Contains(key, ":away:") { // its device is expected back; it expires
			continue
		}
		t.Errorf("%s is left", key)
	}
}

// TestASweepRemembersWhatIsStillExpected: a device moved to a pod that died before it had registered. What it offered
// on the pod before is expected of it still.
func TestASweepRemembersWhatIsStillExpected(t *testing.T) {
	s, ctx := storeOn(t, Options{URL: redistest.Start(t).URL()}), context.Background()
	heartbeat(t, s, "first", "dead")
	sess := claim(t, s, "s1", "first")
	putTools(t, s, sess, spec(t, "camera", "x"))
	must[bool](t)(s.Release(ctx, sess, registry.ReturnWait))
	claim(t, s, "s1", "dead")
	mirror := membersMirror(tenant, newToolSet([]registry.ToolSpec{spec(t, "camera", "x")}).hash)
	if n := must[int64](t)(s.conn.Client().Del(ctx, mirror).Result()); n != 1 { // as if its time were up
		t.Fatalf("there is no mirror %s", mirror)
	}
	lapse(t, s, "dead")
	must[[]registry.DeadPod](t)(s.Sweep(ctx))
	q := registry.Query{Tenant: tenant, Tool: "camera"}
	if due := must[[]registry.Awaited](t)(s.Awaited(ctx, q)); len(due) != 1 {
		t.Errorf("away: %+v", due)
	}
	claim(t, s, "s1", "first")
	if due := must[[]registry.Awaited](t)(s.Awaited(ctx, q)); len(due) != 1 {
		t.Errorf("back, and not registered: %+v", due)
	}
}

// meanwhile does something once, right before a script is first run.
type meanwhile struct {
	crash
	sha string
	do  func()
}

// ProcessPipelineHook implements redis.Hook.
func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); m.do != nil && len(args) > 1 && args[1] == m.sha {
			m.do()
			m.do = nil
		}
		return next(ctx, cmds)
	}
}
