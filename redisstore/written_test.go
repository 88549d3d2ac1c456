package redisstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// A set that was just written is not written again for the next session, but its offers are if they were removed
// meanwhile, because for a moment nobody had the set.
func TestASetThatWasJustWritten(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	tools := []registry.ToolSpec{spec(t, "camera", "x"), spec(t, "torch", "x")}
	offered := func() int64 {
		return must[int64](t)(func() (int64, error) {
			c, err := s.conn.Do(ctx, "ZCARD", offersIndex(tenant))
			return c.Int(), err
		}())
	}
	stored := func() bool {
		return must[bool](t)(func() (bool, error) {
			c, err := s.conn.Do(ctx, "EXISTS", specKey(tenant, tools[0].Hash()))
			return c.Int() == 1, err
		}())
	}
	remove := func() {
		t.Helper()
		pipe := s.conn.Pipeline()
		pipe.Do("DEL", offersIndex(tenant))
		pipe.Do("DEL", specKey(tenant, tools[0].Hash()))
		if err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	put := func(session string) { putTools(t, s, claim(t, s, session, "a"), tools...) }

	put("first")
	remove()
	put("second")
	if n, again := offered(), stored(); n != 2 || again {
		t.Errorf("just written: %d tools are offered, the definition is written again: %v", n, again)
	}
	s.written.forget() // as a heartbeat does that finds Redis emptied
	put("third")
	if !stored() {
		t.Error("a set that Redis may have lost is not written again")
	}
	remove()
	s.written.age = time.Nanosecond
	put("fourth")
	if n := offered(); n != 2 || !stored() {
		t.Errorf("a set written long ago: %d tools are offered", n)
	}
}

// A device that has offered a definition for longer than those before it makes the definition older.
func TestAnElderDeviceOfASetThatWasJustWritten(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	put := func(session, description string, since time.Time) {
		sess := claim(t, s, session, "a")
		sess.Since = since
		putTools(t, s, sess, spec(t, "camera", description))
	}
	now := time.Now()
	put("first", "new", now)
	put("second", "other", now.Add(-time.Minute))
	put("third", "new", now.Add(-time.Hour))
	hashes, err := s.Definitions(ctx, tenant, "camera")
	if err != nil || len(hashes) != 2 || hashes[0] != spec(t, "camera", "new").Hash() {
		t.Errorf("%v, %v", hashes, err)
	}
}

// What a device that comes and goes costs a single Redis: one script each to claim the session, to enter the indexes of
// its labels, to name its tools, to release it, and to take it out of all indexes.
func TestScriptsOfADeviceThatComesAndGoes(t *testing.T) {
	s := dial(t, Options{URL: redistest.Start(t).URL()}).Store()
	ctx := context.Background()
	heartbeat(t, s, "a")
	comeAndGo := func(session string) {
		sess := claim(t, s, session, "a")
		putTools(t, s, sess, spec(t, "camera", "x"))
		if _, err := s.Release(ctx, sess, registry.ReturnWait); err != nil {
			t.Fatal(err)
		}
	}
	comeAndGo("first") // writes the set
	scripts := func() (calls int) {
		c, err := s.conn.Client().Info(ctx, "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, c, _ = strings.Cut(c, "cmdstat_evalsha:calls=")
		c, _, _ = strings.Cut(c, ",")
		calls, err = strconv.Atoi(c)
		if err != nil {
			t.Fatal(err)
		}
		return calls
	}
	before := scripts()
	for _, when := range []string{"the first time", "back, as expected"} {
		comeAndGo("second")
		now := scripts()
		if n := now - before; n != 5 {
			t.Errorf("%s: %d scripts", when, n)
		}
		before = now
	}
}

// The age of a definition that was forgotten, because for a moment nobody offered it, is written again.
func TestAForgottenDefinitionOfASetThatWasJustWritten(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	camera := spec(t, "camera", "x")
	putTools(t, s, claim(t, s, "first", "a"), camera)
	if _, err := s.conn.Do(ctx, "ZREM", definitionsIndex(tenant, "camera"), camera.Hash()); err != nil {
		t.Fatal(err)
	}
	putTools(t, s, claim(t, s, "second", "a"), camera)
	if hashes, err := s.Definitions(ctx, tenant, "camera"); err != nil || len(hashes) != 1 {
		t.Errorf("%v, %v", hashes, err)
	}
}
