package soak_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/sdk/conformance/blackbox"
)

var composeChosen = flag.Bool("compose", false,
	"test the fleet of deploy/compose.yaml, as root, with what sh .ci/deps compose installs")

// composeVictims are the services whose containers are killed in turn: all that keep running.
var composeVictims = []string{"redis", "farhand-1", "balancer", "farhand-2", "prometheus", "farhand-3"}

// TestCompose starts the fleet of deploy/compose.yaml with its one command in an engine of its own, uses it as
// docs/deploy.md says, and kills each container while devices are called. Docker restarts it, and no call is lost but
// what docs/faults.md says.
func TestCompose(t *testing.T) {
	if !*composeChosen {
		t.Log("the fleet of compose is not chosen (-compose), so there is nothing to do")
		return
	}
	engine, err := dockertest.Start()
	must(t, err)
	t.Cleanup(engine.Stop)
	program := buildStatic(t)
	composeImages(t, engine, program)
	c := newCompose(t, engine)
	c.run(append([]string{"up", "--detach", "--no-build"}, c.services()...)...)

	ca, keys := filepath.Join(c.dir, "root.crt"), map[string]string{}
	c.run("cp", "balancer:/data/caddy/pki/authorities/local/root.crt", ca)
	for _, role := range []string{"admin", "approver", "caller", "device"} {
		file := filepath.Join(c.dir, role)
		c.run("cp", "key-"+role+":/data/"+role+".key", file)
		text, err := os.ReadFile(file)
		must(t, err)
		keys[role] = strings.TrimSpace(string(text))
	}
	f := &fleet{
		token: keys["admin"], faults: len(composeVictims), storeDies: true, stop: func(*testing.T) {},
		logged: func(string) []string { return nil },
		http:   &http.Client{Timeout: testkit.Limit},
	}
	trust := testkit.TrustOf(t, ca)
	f.useTLS("https://localhost:"+c.port["HTTPS_PORT"], trust, ca)
	t.Cleanup(func() { f.http.CloseIdleConnections() })
	testkit.Eventually(t, "the balancer answers", func() bool { return f.get("/readyz", new(any)) == nil })
	f.knows = f.isLive
	f.checkRoles(t, keys)
	f.checkStream(t, trust)
	f.checkGuide(t, program, ca, keys)
	blackbox.Check(t, blackbox.Fleet{URL: f.url, Token: f.token, TLS: trust})
	c.checkMetrics()
	f.breakNext = func(t *testing.T, i int) (what, of string) {
		t.Helper()
		service := composeVictims[i%len(composeVictims)]
		c.kill(service)
		return "killed", service
	}
	soak(t, f, []string{"go"})
	c.run("up", "--detach", "--no-build", "redis", "balancer") // a second start keeps the keys
	f.checkRoles(t, keys)
}

// buildStatic builds the program as the Dockerfile does.
func buildStatic(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "farhand")
	build := exec.Command("go", "build", "-tags", "nomsgpack", "-o", program, "../../cmd/farhand")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// compose is the project of deploy/compose.yaml in an engine.
type compose struct {
	t    *testing.T
	api  *client.Client
	env  []string
	dir  string
	port map[string]string
}

func newCompose(t *testing.T, engine *dockertest.Engine) *compose {
	t.Helper()
	api, err := engine.Client()
	must(t, err)
	c := &compose{t: t, api: api, dir: t.TempDir(), port: map[string]string{}}
	c.env = append(os.Environ(), "DOCKER_HOST="+engine.Host(), "REDIS_PASSWORD=compose-test-0123456789",
		"GRAFANA_PASSWORD=unused")
	for _, name := range []string{"HTTPS_PORT", "HTTP_PORT", "PROMETHEUS_PORT"} {
		_, c.port[name], _ = net.SplitHostPort(testkit.FreeAddr(t))
		c.env = append(c.env, name+"="+c.port[name])
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%.20000s", c.run("logs", "--tail", "40"))
		}
		c.run("down", "--volumes", "--timeout", "1")
		_ = api.Close()
	})
	return c
}

// services are those that this machine has images of.
func (c *compose) services() []string {
	all := strings.Fields(c.run("config", "--services"))
	if !slices.Contains(all, "grafana") {
		c.t.Fatalf("there is no grafana among %v", all)
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "grafana" })
}

// run runs docker compose and returns its output.
func (c *compose) run(args ...string) string {
	c.t.Helper()
	cmd := exec.Command("../../.cache/bin/docker-compose",
		append([]string{"-f", "../../deploy/compose.yaml"}, args...)...)
	cmd.Env = c.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	defer func(from time.Time) { c.t.Logf("compose %v: %v", args, time.Since(from)) }(time.Now())
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("docker compose %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// kill kills the process of a container, as its kernel would, and waits until Docker has restarted it.
func (c *compose) kill(service string) {
	c.t.Helper()
	id := strings.TrimSpace(c.run("ps", "--quiet", service))
	inspect := func() client.ContainerInspectResult {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		found, err := c.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		must(c.t, err)
		return found
	}
	before := inspect().Container.State.Pid
	must(c.t, syscall.Kill(before, syscall.SIGKILL))
	testkit.Eventually(c.t, service+" is back", func() bool {
		s := inspect().Container.State
		return s.Running && s.Pid != before && (s.Health == nil || s.Health.Status == "none" ||
			s.Health.Status == "healthy")
	})
}

// checkMetrics waits until Prometheus has scraped every pod and evaluated every rule.
func (c *compose) checkMetrics() {
	c.t.Helper()
	prometheus := "http://127.0.0.1:" + c.port["PROMETHEUS_PORT"]
	get := func(path string) string {
		resp, err := http.Get(prometheus + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return string(body)
	}
	testkit.Eventually(c.t, "Prometheus has the metrics of three pods", func() bool {
		return strings.Contains(get("/api/v1/query?query="+url.QueryEscape(`count(farhand_pods_live == 3)`)), `,"3"]`)
	})
	text, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	must(c.t, err)
	rules := strings.Count(string(text), "- alert: ")
	if rules == 0 {
		c.t.Fatal("deploy/prometheus/rules.yaml has no alerts")
	}
	testkit.Eventually(c.t, "Prometheus evaluates every rule", func() bool {
		return strings.Count(get("/api/v1/rules?type=alert"), `"health":"ok"`) == rules
	})
}

// checkGuide runs the commands of docs/deploy.md: a device with its key, and a caller with another one.
func (f *fleet) checkGuide(t *testing.T, program, ca string, keys map[string]string) {
	t.Helper()
	as := func(ctx context.Context, role string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = []string{"FARHAND_URL=" + f.url, "FARHAND_CA=" + ca, "FARHAND_TOKEN=" + keys[role],
			"HOME=" + t.TempDir()}
		return cmd
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
	device := as(ctx, "device", "device", "--tools", "device_info")
	must(t, device.Start())
	defer func() { cancel(); _ = device.Wait() }()
	testkit.Eventually(t, "the guide's call is answered", func() bool {
		out, err := as(ctx, "caller", "call", "device_info", "{}").Output()
		return err == nil && strings.Contains(string(out), "linux")
	})
}

// isLive reports whether the fleet lists a pod.
func (f *fleet) isLive(id string) bool {
	var list struct{ Pods []struct{ Pod string } }
	if f.get("/api/pods", &list) != nil {
		return false
	}
	return slices.ContainsFunc(list.Pods, func(p struct{ Pod string }) bool { return p.Pod == id })
}

// checkRoles checks that the key of each role has that role alone.
func (f *fleet) checkRoles(t *testing.T, keys map[string]string) {
	t.Helper()
	for role, key := range keys {
		as := *f
		as.token = key
		resp, err := as.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		must(t, err)
		defer resp.Body.Close()
		var me struct{ Roles []string }
		err = as.get("/api/me", &me)
		if got := fmt.Sprint(me.Roles); role != "device" && (err != nil || got != "["+role+"]") {
			t.Errorf("the key of %s has %v, %v", role, me.Roles, err)
		}
		var tools struct{ Result struct{ Tools []any } }
		mayCall := role == "caller" || role == "admin"
		if err := json.NewDecoder(resp.Body).Decode(&tools); mayCall &&
			(err != nil || resp.StatusCode != http.StatusOK) ||
			!mayCall && resp.StatusCode != http.StatusForbidden {
			t.Errorf("MCP with the key of %s: %s %v", role, resp.Status, err)
		}
	}
}
