package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func (c *Cache[K, V]) len() int { return len(c.newer) + len(c.older) }

func TestWhatIsInUseStays(t *testing.T) {
	c := New[string, int](100, 0)
	for i := range 1000 {
		c.Put(fmt.Sprint(i), i, 10)
		if v, ok := c.Get(fmt.Sprint(i)); !ok || v != i {
			t.Fatalf("what was just put is %d, %v", v, ok)
		}
		if _, ok := c.Get("0"); !ok {
			t.Fatalf("what is in use was forgotten after %d others", i)
		}
		if n := c.len(); n > 20 {
			t.Fatalf("%d values of 10 in two generations of 100", n)
		}
	}
	if c.Has("500") {
		t.Error("what nobody asked for is still there")
	}
}

// Has is for those who look without wanting: it keeps nothing.
func TestHasDoesNotKeep(t *testing.T) {
	c := New[int, struct{}](10, 0)
	c.Put(0, struct{}{}, 1)
	for i := range 21 {
		if had := c.Has(0); had != (i < 20) {
			t.Errorf("after %d others: %v", i, had)
		}
		c.Put(i+1, struct{}{}, 1)
	}
}

func TestTheFirstValueIsKept(t *testing.T) {
	c := New[string, int](10, 0)
	for i := range 3 {
		if v, known := c.GetOrPut("a", i, 1); v != 0 || known != (i > 0) {
			t.Errorf("attempt %d: %d, %v", i, v, known)
		}
	}
	c.Delete("a")
	if v, known := c.GetOrPut("a", 7, 1); v != 7 || known {
		t.Errorf("after it was deleted: %d, %v", v, known)
	}
}

func TestSizesAreCounted(t *testing.T) {
	c := New[string, string](100, 0)
	c.Put("small", "kept", 10)
	c.Put("huge", "not kept", 101)
	if c.Has("huge") || !c.Has("small") {
		t.Error("a value that is larger than a generation was kept, or made another one go")
	}
	for range 1000 { // the same one again and again takes no more room
		c.Put("same", "s", 60)
	}
	if !c.Has("small") || c.size != 70 {
		t.Errorf("%d are counted, of one of 60 and one of 10", c.size)
	}
	c.Delete("same")
	if c.size != 10 {
		t.Errorf("%d are counted after one of 60 was deleted", c.size)
	}
}

func TestAnOldGenerationGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int, int](1000, time.Minute)
		for i := range 100 {
			c.Put(i, i, 1)
		}
		for i := range 2 {
			time.Sleep(time.Minute + 1)
			c.Put(1000+i, 0, 1)
		}
		if n := c.len(); n != 2 {
			t.Errorf("%d values are kept, two of them young", n)
		}
	})
}
