package signed

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// clock is a time that a test sets.
type clock struct{ now time.Time }

func (c *clock) signer(optional bool, secrets ...string) *Signer {
	return New(Options{Secrets: secrets, Optional: optional, Now: func() time.Time { return c.now }})
}

func TestOnlyTheFleetIsHeard(t *testing.T) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	a, b := c.signer(false, "one"), c.signer(false, "two", "one")
	text := string(a.Sign("b", []byte("Ecall")))
	changed := func(i int) string { return text[:i] + string(text[i]^1) + text[i+1:] }
	rejected := map[string]string{
		"another pod's":    string(a.Sign("c", []byte("Ecall"))),
		"another secret's": string(c.signer(false, "x").Sign("b", nil)),
		"unsigned":         "Ecall", "empty": "", "short": text[:Overhead-1],
	}
	for i := range text {
		rejected["changed at "+strconv.Itoa(i)] = changed(i)
	}
	for name, text := range rejected {
		if got, err := b.Open("b", text); err == nil {
			t.Errorf("%s: took %q", name, got)
		}
	}
	if got, err := b.Open("b", text); err != nil || got != "Ecall" {
		t.Errorf("the genuine message: %q %v", got, err)
	}
	if _, err := b.Open("b", text); err == nil {
		t.Error("the same message was taken twice")
	}
	if n := b.Rejected(); n["repeated"] != 1 || n["unsigned"] < 3 || n["forged"] < Overhead-1 || n["stale"] != 0 {
		t.Errorf("counted %v", n)
	}
}

func TestOldMessagesAreRejected(t *testing.T) {
	for after, want := range map[time.Duration]bool{
		0: true, Window: true, -Window: true, Window + 1e6: false, -Window - 1e6: false,
	} {
		c := &clock{now: time.Unix(1_800_000_000, 0)}
		s := c.signer(false, "one")
		text := string(s.Sign("b", []byte("E")))
		c.now = c.now.Add(after)
		if _, err := s.Open("b", text); (err == nil) != want {
			t.Errorf("%v later: %v", after, err)
		}
	}
}

// TestNothingIsHeardTwice: a message from a clock that is ahead stays valid for twice the window.
func TestNothingIsHeardTwice(t *testing.T) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	ahead, s := c.signer(false, "one"), c.signer(false, "one")
	start := c.now
	c.now = start.Add(Window)
	text := string(ahead.Sign("b", []byte("E")))
	c.now = start
	if _, err := s.Open("b", text); err != nil {
		t.Fatal(err)
	}
	for c.now = start; c.now.Before(start.Add(5 * Window)); c.now = c.now.Add(time.Second) {
		if _, err := s.Open("b", text); err == nil {
			t.Fatalf("taken again after %v", c.now.Sub(start))
		}
		if _, err := s.Open("b", string(s.Sign("b", []byte("E")))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullMemoryRejectsWhatItForgot(t *testing.T) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	s := c.signer(false, "one")
	s.seen.maximum = 10
	var texts []string
	for range 100 {
		c.now = c.now.Add(time.Millisecond)
		texts = append(texts, string(s.Sign("b", []byte("E"))))
		if _, err := s.Open("b", texts[len(texts)-1]); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range texts {
		if _, err := s.Open("b", text); err == nil {
			t.Errorf("message %d was taken again", i)
		}
	}
}

// TestRollingOut: from no secret to a required one, and from one secret to the next, each pod understands the others at
// each step.
func TestRollingOut(t *testing.T) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	steps := []func() *Signer{
		func() *Signer { return c.signer(false) },
		func() *Signer { return c.signer(true, "old") },
		func() *Signer { return c.signer(false, "old") },
		func() *Signer { return c.signer(false, "old", "new") },
		func() *Signer { return c.signer(false, "new", "old") },
		func() *Signer { return c.signer(false, "new") },
	}
	for i := 1; i < len(steps); i++ {
		for _, pods := range [][2]*Signer{
			{steps[i-1](), steps[i]()}, {steps[i](), steps[i-1]()}, {steps[i](), steps[i]()},
		} {
			if got, err := pods[1].Open("b", string(pods[0].Sign("b", []byte("Ecall")))); err != nil || got != "Ecall" {
				t.Errorf("step %d: %q %v", i, got, err)
			}
			if !pods[1].OpenEntry(c.now, pods[0].SignEntry("a", "b"), "a", "b") {
				t.Errorf("step %d: the entry of a log was not taken", i)
			}
		}
	}
}

func TestEntriesOfALog(t *testing.T) {
	c := &clock{now: time.Unix(1_800_000_000, 0)}
	s := c.signer(false, "one")
	written, signature := c.now, s.SignEntry("acme", "user", "anna")
	c.now = c.now.Add(48 * time.Hour) // a pod that starts reads the whole log
	for name, ok := range map[string]bool{
		"genuine":         s.OpenEntry(written, signature, "acme", "user", "anna"),
		"other fields":    !s.OpenEntry(written, signature, "acme", "user", "ben"),
		"moved fields":    !s.OpenEntry(written, signature, "acmeu", "ser", "anna"),
		"written again":   !s.OpenEntry(c.now, signature, "acme", "user", "anna"),
		"unsigned":        !s.OpenEntry(written, "", "acme", "user", "anna"),
		"garbled":         !s.OpenEntry(written, "?", "acme", "user", "anna"),
		"for a pod":       !s.OpenEntry(written, strings.ToUpper(signature), "acme", "user", "anna"),
		"counted by time": s.Rejected()["stale"] == 1 && s.Rejected()["forged"] == 0,
	} {
		if !ok {
			t.Errorf("%s: wrong", name)
		}
	}
}

func BenchmarkSigned(b *testing.B) {
	for name, secrets := range map[string][]string{"off": nil, "on": {"a secret of thirty-two characters"}} {
		for _, size := range []int{200, 2 << 10, 64 << 10} {
			b.Run(name+"/"+strconv.Itoa(size), func(b *testing.B) {
				s, message := New(Options{Secrets: secrets}), []byte("E"+strings.Repeat("x", size-1))
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Open("pod-b", string(s.Sign("pod-b", message))); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
