// Package live_test tests the alerts with a real Prometheus and real pods, with what `.ci/deps alerts` installs. For
// each fault, its metric changes, its alert fires, and the first command of its runbook shows the cause.
//
//	go test ./deploy/prometheus/live -alerts
package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/metrics/metricstest"
	"github.com/farhand/farhand/internal/testkit"
)

var chosen = flag.Bool("alerts", false, "test the alerts with Prometheus, which sh .ci/deps alerts installs")

// program is farhand, built for these tests.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("alerts are not tested with Prometheus: only a change of metrics or rules breaks them; use -alerts")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "farhand-alerts")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "farhand")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/farhand").CombinedOutput(); err != nil {
		fmt.Printf("build farhand: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const token = "a-token-for-the-tests-of-alerts-8f3a61c2"

// process is a program of a test. Its output is shown if the test fails.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output bytes.Buffer
	done   chan struct{}
}

// start starts a program, which the end of the test kills.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	must(t, cmd.Start())
	go func() { defer close(p.done); _ = cmd.Wait() }()
	t.Cleanup(func() {
		p.kill()
		if text := p.output.String(); t.Failed() {
			t.Logf("%s printed:\n%s", filepath.Base(cmd.Path), text[max(0, len(text)-4000):])
		}
	})
	return p
}

// kill kills the program and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	testkit.Receive(p.t, "the end of a program", p.done)
}

// pod is a running pod.
type pod struct {
	*process
	url, addr, metrics string
	env                []string
}

// startPod starts a pod with these settings, and waits until it answers on its metrics address.
func startPod(t *testing.T, env ...string) *pod {
	t.Helper()
	p := &pod{addr: testkit.FreeAddr(t), metrics: testkit.FreeAddr(t)}
	p.env = append([]string{
		"FARHAND_DATA_DIR=off", "FARHAND_WORKSPACE_DIR=" + t.TempDir(), "FARHAND_BLOB_URL=none",
	}, env...)
	p.url = "http://" + p.addr
	p.restart(t)
	return p
}

// restart starts the pod's program, with further settings.
func (p *pod) restart(t *testing.T, env ...string) {
	t.Helper()
	cmd := exec.Command(program, "serve")
	cmd.Env = append(append(append(os.Environ(), "FARHAND_ADDR="+p.addr,
		"FARHAND_METRICS_ADDR="+p.metrics, "FARHAND_TOKEN="+token), p.env...), env...)
	p.process = start(t, cmd)
	testkit.Eventually(t, "a pod serves its metrics", func() bool {
		resp, err := http.Get("http://" + p.metrics + "/metrics")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil
	})
}

// post sends JSON to the pod. Errors are answers, too.
func (p *pod) post(path, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		return
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// dial connects a device.
func (p *pod) dial(session string) (*websocket.Conn, error) {
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+p.addr+"/ws/chat?session_id="+session,
		http.Header{"Authorization": {"Bearer " + token}})
	return conn, err
}

// prometheus is a running Prometheus with the rules in seconds.
type prometheus struct {
	t   *testing.T
	url string
}

const window = "10s" // of every rate in the rules

// faster returns the rules with short windows.
func faster(rules string) string {
	for pattern, short := range map[string]string{
		`\[\d+[smh]\]`: "[" + window + "]", `offset \d+[smh]`: "offset " + window, `for: \d+[smh]`: "for: 1s",
	} {
		rules = regexp.MustCompile(pattern).ReplaceAllString(rules, short)
	}
	return rules
}

// watch starts a Prometheus that scrapes pods every second, and waits for its first scrape of each.
func watch(t *testing.T, pods ...*pod) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("../rules.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(faster(string(rules))), 0o600))
	var targets []string
	for _, p := range pods {
		targets = append(targets, fmt.Sprintf("%q", p.metrics))
	}
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n" +
		"scrape_configs: [{job_name: farhand, static_configs: [{targets: [" + strings.Join(targets, ", ") + "]}]}]\n"
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o600))
	addr := testkit.FreeAddr(t)
	start(t, exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--log.level=warn",
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr))
	p := &prometheus{t, "http://" + addr}
	testkit.Eventually(t, "Prometheus has read all pods", func() bool {
		return p.value("count(farhand_build_info)") == float64(len(pods))
	})
	return p
}

// get reads an answer of Prometheus' API.
func (p *prometheus) get(path string, into any) bool {
	resp, err := http.Get(p.url + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
}

// value returns the only value of an expression, or -1.
func (p *prometheus) value(expr string) float64 {
	var answer struct {
		Data struct {
			Result []struct {
				Value []any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if !p.get("/api/v1/query?query="+strings.NewReplacer(" ", "%20", "+", "%2B").Replace(expr), &answer) ||
		len(answer.Data.Result) != 1 {
		return -1
	}
	var n float64
	_, _ = fmt.Sscan(fmt.Sprint(answer.Data.Result[0].Value[1]), &n)
	return n
}

// isFiring reports whether an alert fires.
func (p *prometheus) isFiring(alert string) bool {
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string `json:"labels"`
				State  string            `json:"state"`
			} `json:"alerts"`
		} `json:"data"`
	}
	p.get("/api/v1/alerts", &answer)
	for _, a := range answer.Data.Alerts {
		if a.Labels["alertname"] == alert && a.State == "firing" {
			return true
		}
	}
	return false
}

// fires waits until an alert fires. Then the first command of its runbook, about a pod, prints the cause, a pattern.
func (p *prometheus) fires(alert string, about *pod, cause string) {
	p.t.Helper()
	took := testkit.Eventually(p.t, alert+" fires", func() bool { return p.isFiring(alert) })
	page, err := metricstest.ReadRunbooks("../../../docs/runbooks.md")
	must(p.t, err)
	_, command, _ := page.Section(alert)
	cmd := exec.Command("bash", "-c", page.Preamble()+"\nPOD="+about.metrics+"\n"+command)
	cmd.Env = append(os.Environ(), "FARHAND_TOKEN="+token, "FARHAND_URL="+about.url, "LC_ALL=C",
		"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	out, _ := cmd.CombinedOutput() // a command that cannot connect shows that
	if !regexp.MustCompile(cause).Match(out) {
		p.t.Errorf("%s: %s\nprinted\n%s\nwant %s", alert, command, out, cause)
	}
	p.t.Logf("%s fired after %v", alert, took.Round(100*time.Millisecond))
}

// clears waits until an alert no longer fires.
func (p *prometheus) clears(alert string) {
	p.t.Helper()
	testkit.Eventually(p.t, alert+" clears", func() bool { return !p.isFiring(alert) })
}

// repeat calls do again and again in the background, until the test ends or stop is called.
func repeat(t *testing.T, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			do()
		}
	}()
	stop = func() { cancel(); testkit.Receive(t, "the end of a loop", done) }
	t.Cleanup(stop)
	return stop
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// terminate asks a pod to stop.
func (p *pod) terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
