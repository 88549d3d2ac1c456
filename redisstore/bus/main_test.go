package bus

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait for something that must come true.
const testTimeout = testkit.Limit

// dial connects and closes the connection when the test ends.
func dial(t testing.TB, url string) *redisconn.Conn {
	t.Helper()
	conn, err := redisconn.Dial(context.Background(), redisconn.Options{URL: url}, Scripts())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// listen starts a bus for pod and closes it when the test ends. A probe interval may follow.
func listen(t *testing.T, conn *redisconn.Conn, pod string, h registry.BusHandler, probe ...time.Duration) *Bus {
	t.Helper()
	var o Options
	for _, o.ProbeInterval = range probe {
	}
	b := New(conn, o)
	if err := b.Listen(context.Background(), pod, h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close bus: %v", err)
		}
	})
	return b
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	return registrytest.Receive(t, "a message", c)
}
