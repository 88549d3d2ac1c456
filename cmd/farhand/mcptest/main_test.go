// Package mcptest has no code of its own: its tests run three pods behind a balancer that keeps no client on one pod,
// and have programs that others wrote speak MCP with them: the MCP project's conformance suite, its SDKs for Node and
// Python, and its Inspector. `make deps` installs them.
//
// Start with suite_test.go for the suite, clients_test.go for the SDKs, and soak_test.go for many of both sides.
package mcptest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// podVariable makes this program a pod. A pod of its own process can be killed, and has the race detector of the tests.
const podVariable = "MCPTEST_POD"

func TestMain(m *testing.M) {
	if os.Getenv(podVariable) != "" {
		os.Exit(servePod())
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// servePod runs a pod as `farhand serve` does, until SIGTERM.
func servePod() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serveUntil(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveUntil(ctx context.Context) error {
	cfg, err := farhand.LoadConfig(os.Environ())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g, err := farhand.New(ctx, cfg, farhand.WithLogger(log))
	if err != nil {
		return err
	}
	err = g.Run(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	if closeErr := g.Close(closing); err == nil {
		err = closeErr
	}
	return err
}

// waitLimit bounds every wait of these tests.
const waitLimit = testkit.Limit

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, what, holds)
}
