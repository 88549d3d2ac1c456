package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// A connect with many labels is a handful of commands for Redis, not several for each label.
func TestLabelsCostFewCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn, err := Dial(t.Context(), Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	store := conn.Store()
	claim, err := store.Claim(t.Context(), registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}, Pod: "p"})
	if err != nil {
		t.Fatal(err)
	}
	s := claim.Session
	labelled := func(round string) registry.Session {
		s.Labels = make(map[string]string)
		for i := range 32 {
			s.Labels[fmt.Sprintf("key%d", i)] = round
		}
		return s
	}
	for _, c := range []struct {
		name string
		do   func() error
		most int
	}{
		{"first labels", func() error { return store.Update(t.Context(), labelled("a")) }, 8},
		{"other labels", func() error { return store.Update(t.Context(), labelled("b")) }, 8},
		{"the same labels", func() error { return store.Update(t.Context(), labelled("b")) }, 6},
		{"release", func() error { _, err := store.Release(t.Context(), s, 0); return err }, 8},
	} {
		before := sentCommands(t, server)
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if n := sentCommands(t, server) - before; n > c.most {
			t.Errorf("%s: %d commands, want at most %d", c.name, n, c.most)
		}
	}
	for _, value := range []string{"a", "b"} {
		n, err := server.Command("ZCARD", labelIndex("t", "key7", value))
		if err != nil || strings.TrimSpace(n) != "0" {
			t.Errorf("label %s is in the index of %s sessions, %v", value, n, err)
		}
	}
}

// sentCommands counts the scripts and other commands that clients sent, INFO aside. What scripts call is not among
// them.
func sentCommands(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	info, err := server.Command("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"evalsha", "hmget", "eval"} {
		_, rest, found := strings.Cut(info, "cmdstat_"+name+":calls=")
		if !found {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		calls, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		n += calls
	}
	return n
}
