package live_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// TestPromtool: promtool accepts the rules, its tests fire and clear each, and it parses the dashboards' expressions.
func TestPromtool(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "../rules.yaml", dashboardRules(t)}, {"test", "rules", "../rules_test.yaml"},
	} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// dashboardRules writes the expressions of all dashboards as rules, with values for Grafana's variables.
func dashboardRules(t *testing.T) string {
	files, err := filepath.Glob("../../grafana/*.json")
	must(t, err)
	text := "groups:\n  - name: dashboards\n    rules:\n"
	n := 0
	for _, file := range files {
		var page struct {
			Panels []struct {
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		content, err := os.ReadFile(file)
		must(t, err)
		must(t, json.Unmarshal(content, &page))
		for _, p := range page.Panels {
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".+").Replace(target.Expr)
				n++
				text += fmt.Sprintf("      - {record: 'expression:%d', expr: %q}\n", n, expr)
			}
		}
	}
	if n < 50 {
		t.Fatalf("the dashboards have %d expressions", n)
	}
	path := filepath.Join(t.TempDir(), "dashboards.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestKilledPod: kill -9.
func TestKilledPod(t *testing.T) {
	redis := "FARHAND_REDIS_URL=" + redistest.Start(t).URL()
	a, b := startPod(t, redis, "FARHAND_POD_LEASE=2s"), startPod(t, redis, "FARHAND_POD_LEASE=2s")
	p := watch(t, a, b)
	b.kill()
	p.fires("FarhandPodDown", b, "(?i)refused|couldn't connect")
	p.fires("FarhandPodDied", a, `farhand_pods_died_total 1\n`)
	b.restart(t)
	p.clears("FarhandPodDown")
	p.clears("FarhandPodDied")
}

// TestOutOfMemory: the kernel kills a pod that exceeds the limit of its cgroup. Only root can make one.
func TestOutOfMemory(t *testing.T) {
	a := startPod(t)
	p := watch(t, a)
	group, limit := "/sys/fs/cgroup/memory/farhand-alerts", "memory.limit_in_bytes" // version 1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, limit = "/sys/fs/cgroup/farhand-alerts", "memory.max"
	}
	if err := os.Mkdir(group, 0o700); err != nil {
		skipUnlessRoot(t, "a limit of memory needs root and its cgroups (%v)", err)
	}
	t.Cleanup(func() { a.kill(); _ = os.Remove(group) })
	most := int(p.value("process_resident_memory_bytes")) / 4
	must(t, os.WriteFile(filepath.Join(group, limit), []byte(strconv.Itoa(most)), 0))
	must(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(a.cmd.Process.Pid)), 0))
	p.fires("FarhandMemoryNearLimit", a, `farhand_memory_limit_bytes [1-9](.*\n)*process_resident_memory_bytes [2-9]`)
	for i := range 2000 { // each connection needs memory
		conn, err := a.dial(fmt.Sprint("device", i))
		if err != nil {
			break
		}
		defer conn.Close()
	}
	testkit.Receive(t, "the end of the pod", a.done)
	if status, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the pod ended with %v", a.cmd.ProcessState)
	}
	p.fires("FarhandPodDown", a, "(?i)refused|couldn't connect")
}

// skipUnlessRoot fails a test that root was expected to pass: a run that skips it would count as if it saw the alert.
func skipUnlessRoot(t *testing.T, why string, args ...any) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Fatalf(why, args...)
	}
	t.Skipf("not tested: "+why, args...)
}

// TestMemory: a pod needs more than its limit.
func TestMemory(t *testing.T) {
	a := startPod(t, "GOMEMLIMIT=20MiB")
	p := watch(t, a)
	p.fires("FarhandMemoryNearLimit", a,
		`farhand_memory_limit_bytes 2.097152e\+07\n(.*\n)*process_resident_memory_bytes [2-9]`)
	a.kill()
	a.restart(t, "GOMEMLIMIT=2GiB")
	p.clears("FarhandMemoryNearLimit")
}

// TestRedisFailover: Sentinel makes the replica the master, and pods follow it.
func TestRedisFailover(t *testing.T) {
	servers := redistest.Sentinel(t)
	a := startPod(t, "FARHAND_REDIS_URL="+servers.URL)
	p := watch(t, a)
	servers.Masters[0].Kill()
	servers.Promoted()
	p.fires("FarhandRedisFailover", a, `farhand_bus_events_total\{event="resubscribed"\} [1-9]`)
	p.clears("FarhandRedisFailover")
	p.clears("FarhandRedisUnreachable")
}

// TestRedisAway: Redis is gone until it is started again.
func TestRedisAway(t *testing.T) {
	redis := redistest.Start(t)
	a := startPod(t, "FARHAND_REDIS_URL="+redis.URL())
	p := watch(t, a)
	redis.Kill()
	p.fires("FarhandRedisUnreachable", a,
		`farhand_heartbeats_total\{result="missed"\} [1-9](.*\n)*.*failure="connection"`)
	redis.Restart()
	p.clears("FarhandRedisUnreachable")
}

// TestFullDisk: the disk of the state file fills. Only root can mount a small one.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=32m", "farhand", dir).CombinedOutput(); err != nil {
		skipUnlessRoot(t, "a small disk needs root and its right to mount (%v: %s)", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	a := startPod(t, "FARHAND_DATA_DIR="+filepath.Join(dir, "data"))
	p := watch(t, a)
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 32<<20), 0o600) // fails when the disk is full
	p.fires("FarhandDiskFull", a, `farhand_disk_free_bytes\{folder="data"\} [0-9.]+(e\+0[1-5])?\n`)
	must(t, os.Remove(filler))
	p.clears("FarhandDiskFull")
}

// TestCertificate: it expires, and a new one is read.
func TestCertificate(t *testing.T) {
	cert, key := testkit.Certificate(t, t.TempDir(), time.Now().Add(15*time.Second))
	a := startPod(t, "FARHAND_TLS_CERT="+cert, "FARHAND_TLS_KEY="+key)
	p := watch(t, a)
	p.fires("FarhandCertificateExpiresSoon", a, `farhand_tls_certificate_expiry_timestamp_seconds 1\.`)
	p.fires("FarhandCertificateExpired", a, `farhand_tls_certificate_expiry_timestamp_seconds 1\.`)
	p.clears("FarhandCertificateExpiresSoon")
	newCert, newKey := testkit.Certificate(t, t.TempDir(), time.Now().AddDate(0, 3, 0))
	must(t, os.Rename(newKey, key))
	must(t, os.Rename(newCert, cert))
	p.clears("FarhandCertificateExpired")
}

// TestModelDown: nothing listens at the model's address.
func TestModelDown(t *testing.T) {
	a := startPod(t, "FARHAND_MODEL=gpt", "FARHAND_MODEL_URL=http://"+testkit.FreeAddr(t)+"/v1")
	p := watch(t, a)
	var stops []func()
	for range 4 {
		stops = append(stops, repeat(t, func() {
			a.post("/v1/chat/completions", `{"model":"gpt","messages":[{"role":"user","content":"hello"}]}`)
		}))
	}
	p.fires("FarhandModelDown", a, `farhand_model_requests_total\{model="gpt",outcome="failure"\} [1-9]`)
	for _, stop := range stops {
		stop()
	}
	p.clears("FarhandModelDown")
}

// TestFloodingDevice: devices send more frames than they may, and connect again. The pod lets each back in after
// seconds.
func TestFloodingDevice(t *testing.T) {
	a := startPod(t, "FARHAND_FRAME_RATE=10")
	p := watch(t, a)
	device := 0
	stop := repeat(t, func() {
		device = (device + 1) % 20
		conn, err := a.dial(fmt.Sprint("flood", device))
		if err != nil {
			time.Sleep(50 * time.Millisecond) // as devices do; nothing waits for it
			return
		}
		defer conn.Close()
		for range 10_000 {
			if conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"ping"}`)) != nil {
				return
			}
		}
	})
	p.fires("FarhandDeviceFloods", a, `farhand_sockets_closed_total\{reason="rate_limited"\} [1-9]`)
	stop()
	p.clears("FarhandDeviceFloods")
}

// TestSlowDrain: a stopping pod waits for a request that does not end.
func TestSlowDrain(t *testing.T) {
	a := startPod(t, "FARHAND_DRAIN_TIMEOUT=30s")
	p := watch(t, a)
	conn, err := a.dial("slow")
	must(t, err)
	defer conn.Close()
	must(t, conn.WriteMessage(websocket.TextMessage, []byte(
		`{"type":"register_tools","tools":[{"name":"slow","description":"Never answers.",`+
			`"parameters":{"type":"object"}}]}`)))
	repeat(t, func() { a.post("/api/sessions/slow/tools/slow/call", `{"args":{},"timeout_ms":120000}`) })
	testkit.Eventually(t, "a call is in flight", func() bool {
		return p.value(`farhand_calls_in_progress{place="in_flight"}`) == 1
	})
	must(t, a.terminate())
	p.fires("FarhandDrainingTooLong", a,
		`farhand_calls_in_progress\{place="in_flight"\} 1(.*\n)*farhand_drain_used_ratio 0\.[5-8]`)
}
