package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// changing has a server say that its tools have changed a while after each list, and returns when they are listed
// within a time.
func changing(after, within time.Duration) (lists []time.Duration) {
	c, began := new(relistDelay), time.Now()
	for {
		c.last = time.Now()
		if time.Since(began) > within {
			return lists
		}
		lists = append(lists, time.Since(began))
		time.Sleep(after)
		time.Sleep(c.next())
	}
}

// A server whose tools change all the time is listed at most once in a second, and less and less often.
func TestServersThatAlwaysChangeAreListedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Millisecond, time.Second, 9 * time.Second} {
			lists := changing(after, time.Hour)
			for i := 1; i < len(lists); i++ {
				if gap := lists[i] - lists[i-1]; gap < minRelist || gap > maxRelist {
					t.Errorf("after %v: list %d comes %v after the one before", after, i, gap)
				}
			}
			if n := len(lists); n > 60+6 { // the first six come sooner
				t.Errorf("after %v: listed %d times in an hour", after, n)
			}
		}
		for after := range 130 { // in whatever rhythm
			if n := len(changing(time.Duration(after)*time.Second, time.Hour)); n > 1+3600/10 {
				t.Errorf("after %d s: listed %d times in an hour", after, n)
			}
		}
	})
}

// A server that was quiet is listed soon again, as one that has said nothing before.
func TestQuietServersAreListedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(relistDelay)
		for range 20 {
			c.last = time.Now()
			time.Sleep(c.next())
		}
		c.last = time.Now()
		time.Sleep(2 * maxRelist)
		if wait := c.next(); wait != 0 {
			t.Errorf("it is listed after %v", wait)
		}
		c.last = time.Now()
		if wait := c.next(); wait != minRelist {
			t.Errorf("and then after %v", wait)
		}
	})
}
