package redisstore

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must come true.
const patience = 15 * time.Second

// dial connects and closes the connection when the test ends.
func dial(t testing.TB, o Options) *Conn {
	t.Helper()
	conn, err := Dial(context.Background(), o)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// eventually polls until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("did not come true within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}
