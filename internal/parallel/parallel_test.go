package parallel

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestEach: each step is done once and no more than the limit at a time; an error does not stop the others.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most, done := 0, 0, make([]int, 10)
		errOdd := errors.New("odd")
		err := Each(len(done), 3, func(i int) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			running--
			done[i]++
			if i%2 == 1 {
				return errOdd
			}
			return nil
		})
		for i, n := range done {
			if n != 1 {
				t.Errorf("step %d was done %d times", i, n)
			}
		}
		if !errors.Is(err, errOdd) || most != 3 || running != 0 {
			t.Errorf("error %v, %d at a time, %d still run", err, most, running)
		}
	})
	if err := Each(0, 3, func(int) error { return errors.New("called") }); err != nil {
		t.Errorf("no steps: %v", err)
	}
}
