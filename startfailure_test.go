package farhand_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/farhand/farhand"
)

// A gateway that cannot start leaves no address taken, however far it came: not that of its metrics, and not that of a
// listener it was given.
func TestFailedStartFreesItsAddresses(t *testing.T) {
	nothing := func(context.Context, struct{}) (any, error) { return nil, nil }
	for name, tt := range map[string]struct {
		change func(*farhand.Config)
		option farhand.Option
		want   string
	}{
		"a setting": {func(c *farhand.Config) { c.Sandbox = "none,docker" }, quiet, "FARHAND_SANDBOX"},
		"the store": {func(c *farhand.Config) { c.RedisURL = "redis://127.0.0.1:1" }, quiet, "127.0.0.1:1"},
		"containers": {func(c *farhand.Config) {
			c.Builtins, c.Sandbox = []string{"exec"}, farhand.SandboxDocker
			c.DockerHost = "unix:///nonexistent/docker.sock"
		}, farhand.WithProgram(self), "/nonexistent/docker.sock"},
		"its main": {func(c *farhand.Config) { c.Builtins = []string{"bash"} }, quiet, "host.Main"},
		"a tool":   {func(*farhand.Config) {}, farhand.WithToolFunc("time", "Another clock.", nothing), "time"},
	} {
		listener, metrics := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
		metrics.Close()
		cfg := farhand.Config{MetricsAddr: metrics.Addr().String()}
		cfg.WorkspaceDir = t.TempDir()
		tt.change(&cfg)
		g, err := farhand.New(t.Context(), cfg, quiet, farhand.WithListener(listener), tt.option)
		if g != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		for _, l := range []net.Listener{listener, metrics} {
			listen(t, l.Addr().String()).Close()
		}
	}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
