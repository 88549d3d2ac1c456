package redisstore

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait for something that must come true.
const testTimeout = testkit.Limit

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
