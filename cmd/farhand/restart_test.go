package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry/memory/statefile"
)

const restartSecret = "0123456789abcdef0123456789abcdef"

// lasting is one gateway without Redis, which is started again and again with the same file.
type lasting struct {
	*testing.T
	folder   string // of the state file
	settings []string
	pod      *pod
	key      string // of ann
	token    string // a revoked one, of bob
	device   *process
}

// run runs a command with the pod's token, which must succeed.
func (m *lasting) run(args ...string) string {
	m.Helper()
	code, out, errOut := command(m.T, []string{"FARHAND_URL=" + m.pod.url, "FARHAND_TOKEN=" + fleetToken}, args...)
	if code != 0 {
		m.Fatalf("%v: exit %d\n%s%s", args, code, out, errOut)
	}
	return out
}

// status returns the status of a request with a credential.
func (m *lasting) status(credential string) int {
	m.Helper()
	req, err := http.NewRequest(http.MethodGet, m.pod.url+"/api/tools", nil)
	if err != nil {
		m.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestOneMachineRemembers: a gateway is stopped, and killed. Keys, paired devices, grants, conversations, revocations,
// the audit log and usage are there afterwards. The device goes on without pairing again.
func TestOneMachineRemembers(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAI(t, scripted.Reply(scripted.Text("Good day."), scripted.Usage(10, 2)))
	folder := t.TempDir()
	m := &lasting{T: t, folder: folder, settings: append(agentSettings(providerOpenAI, model), askingAlways(t),
		"FARHAND_DATA_DIR="+folder, "FARHAND_PAIRING=open", "FARHAND_JWT_ISSUER=issuer",
		"FARHAND_JWT_AUDIENCE=farhand", "FARHAND_JWT_SECRET="+restartSecret)}
	m.pod = startPod(t, m.settings...)
	m.prepare()
	m.check("before")
	usage, audit := m.run("usage"), m.run("audit", "--action", "device.update", "--export")
	addr := strings.TrimPrefix(m.pod.url, "http://")
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		m.pod.signal(signal)
		m.pod.exit(t)
		m.pod = startPodAt(t, addr, m.settings...)
		if now := m.run("audit", "--action", "device.update", "--export"); now != audit || audit == "" {
			t.Errorf("after %v the audit log has %q, not %q", signal, now, audit)
		}
		if signal == syscall.SIGTERM {
			if now := m.run("usage"); now == "" || len(now) < len(usage) {
				t.Errorf("the usage was\n%s, and is\n%s", usage, now)
			}
		}
		m.check(fmt.Sprint("after ", signal))
	}
	m.restore(addr)
}

// restore backs the gateway up while it writes, and starts it again with the copy. It has what it had then, also after
// another kill.
func (m *lasting) restore(addr string) {
	m.Helper()
	made, stopped, ended := make(chan string, 1), make(chan struct{}), make(chan struct{})
	go func() { // makes keys, one after the other, as many as a tenant may
		defer close(ended)
		for {
			status, raw := request(m.T, http.MethodPost, m.pod.url+"/api/keys", `{"roles":["caller"]}`)
			var key struct{ Key string }
			if status != http.StatusTooManyRequests && json.Unmarshal(raw, &key) != nil {
				m.Errorf("a key beside a backup: %d %s", status, raw)
			}
			select {
			case <-stopped:
				return
			case made <- key.Key: // the first
			default:
			}
		}
	}()
	before := <-made
	status, backup := request(m.T, http.MethodGet, m.pod.url+"/api/backup", "")
	close(stopped)
	<-ended
	if status != http.StatusOK {
		m.Fatalf("the backup: %d %s", status, backup)
	}
	after := strings.TrimSpace(m.run("keys", "create"))
	eventually(m.T, waitLimit, "the backup is in the audit log", func() bool {
		return m.run("audit", "--action", "backup", "--export") != ""
	})
	for _, when := range []string{"restored", "restored and killed"} {
		m.pod.signal(syscall.SIGKILL)
		m.pod.exit(m.T)
		if when == "restored" {
			if err := os.WriteFile(filepath.Join(m.folder, statefile.Name), backup, 0o600); err != nil {
				m.Fatal(err)
			}
		}
		m.pod = startPodAt(m.T, addr, m.settings...)
		m.check(when)
		if then, later := m.status(before), m.status(after); then != http.StatusOK || later != http.StatusUnauthorized {
			m.Errorf("%s: a key of before the backup: %d; one of after it: %d", when, then, later)
		}
	}
}

// prepare makes everything that must be remembered.
func (m *lasting) prepare() {
	m.Helper()
	m.key = strings.TrimSpace(m.run("keys", "create", "--user", "ann", "--tools", "echo sleep device_info"))
	m.token = testkit.JWT(m.T, "HS256", []byte(restartSecret), nil, map[string]any{
		"iss": "issuer", "aud": "farhand", "sub": "bob", "roles": []string{"caller"},
		"iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	if status := m.status(m.token); status != http.StatusOK {
		m.Fatalf("bob's token: %d", status)
	}
	m.run("keys", "revoke", "--user", "bob")

	m.device = start(m.T, []string{"FARHAND_URL=" + m.pod.url, "HOME=" + m.TempDir()}, farhandBinary,
		"device", "--pair",
		"--credential", filepath.Join(m.TempDir(), "credential.json"), "--device", "cam-1", "--session", "cam")
	code := ""
	eventually(m.T, waitLimit, "the code is shown", func() bool {
		if found := waitingCode.FindStringSubmatch(m.device.out.String()); found != nil {
			code = found[1]
		}
		return code != ""
	})
	m.run("pair", "approve", code, "--name", "Door", "--tools", "echo")
	m.connected()
	m.run("devices", "rename", "cam-1", "Gate")

	asked := make(chan int, 1)
	go func() {
		code, _, _ := command(m.T, []string{"FARHAND_URL=" + m.pod.url, "FARHAND_TOKEN=" + m.key}, "call", "echo",
			`{"text":"hello"}`)
		asked <- code
	}()
	m.run("approve", "allow", waitingOn(m.T, m.pod.url), "--always", "--any-args", "--for", "24h")
	if code := <-asked; code != 0 {
		m.Errorf("the approved call: exit %d", code)
	}
	status, raw := request(m.T, http.MethodPost, m.pod.url+"/api/sessions/cam/messages", `{"content":"hello"}`)
	if status != http.StatusOK {
		m.Errorf("the turn: %d %s", status, raw)
	}
	eventually(m.T, waitLimit, "the usage is written", func() bool { return strings.Contains(m.run("usage"), "echo") })
}

// connected waits until the device has registered its tools.
func (m *lasting) connected() {
	m.Helper()
	eventually(m.T, waitLimit, "the paired device offers its tool",
		func() bool { return toolsOf(m.T, m.pod.url)["cam"] > 0 })
}

// check fails if something has been forgotten.
func (m *lasting) check(when string) {
	m.Helper()
	m.connected()
	if strings.Count(m.device.out.String(), "farhand pair approve") != 1 {
		m.Errorf("%s: the device asks to be paired again:\n%s", when, m.device.out.String())
	}
	if status := m.status(m.key); status != http.StatusOK {
		m.Errorf("%s: ann's key: %d", when, status)
	}
	eventually(m.T, waitLimit, "bob's token is rejected",
		func() bool { return m.status(m.token) == http.StatusUnauthorized })
	code, out, errOut := command(m.T, []string{"FARHAND_URL=" + m.pod.url, "FARHAND_TOKEN=" + m.key}, "call", "echo",
		`{"text":"hello"}`)
	if code != 0 || !strings.Contains(out, "hello") {
		m.Errorf("%s: a call that a grant allows: exit %d\n%s%s", when, code, out, errOut)
	}
	if list := m.run("devices", "list"); !strings.Contains(list, "Gate") {
		m.Errorf("%s: the devices are\n%s", when, list)
	}
	var history struct{ Messages []json.RawMessage }
	getJSON(m.T, m.pod.url+"/api/sessions/cam/messages", &history)
	if len(history.Messages) != 2 || !strings.Contains(string(history.Messages[1]), "Good day.") {
		m.Errorf("%s: the conversation is %s", when, history.Messages)
	}
}

// TestStateFileOfAnother: serve refuses a file that another process has, and one of a newer release, and says what to
// do. The first key of a gateway without a token is made while it does not run.
func TestStateFileOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := "FARHAND_DATA_DIR=" + dir
	keysOnly := []string{data, "FARHAND_TOKEN=", "FARHAND_KEYS_ONLY=true"}
	code, key, errOut := command(t, keysOnly, "keys", "create", "--store", "--role", "admin")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	p := startPod(t, keysOnly...)
	if code, _, errOut := command(t, []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + strings.TrimSpace(key)},
		"keys", "list"); code != 0 {
		t.Errorf("the first key: exit %d, %s", code, errOut)
	}
	owner := fmt.Sprintf("in use by process %d on ", p.cmd.Process.Pid)
	for _, args := range [][]string{{"serve"}, {"keys", "create", "--store"}} {
		code, _, errOut := command(t, []string{data, "FARHAND_ADDR=127.0.0.1:0"}, args...)
		if code != exitError || !strings.Contains(errOut, owner) || !strings.Contains(errOut, "FARHAND_DATA_DIR") {
			t.Errorf("%v beside a gateway: exit %d, %s", args, code, errOut)
		}
	}
	for _, args := range [][]string{{"doctor", "--json"}, {"config"}} {
		_, out, errOut := command(t, quietEnvironment(t, data), args...)
		if !strings.Contains(out, fmt.Sprintf("process %d on", p.cmd.Process.Pid)) {
			t.Errorf("%v beside a gateway: %s%s", args, out, errOut)
		}
	}
	for _, args := range [][]string{{"doctor", "--json"}, {"config"}} {
		if _, out, _ := command(t, quietEnvironment(t, noData), args...); !strings.Contains(out,
			"in memory, for one process") {
			t.Errorf("%v with memory alone: %s", args, out)
		}
	}
	p.signal(syscall.SIGTERM)
	p.exit(t)

	db, err := bbolt.Open(filepath.Join(dir, statefile.Name), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("99"))
	})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve"}, {"config"}, {"doctor"}} {
		code, out, errOut := command(t, quietEnvironment(t, data), args...)
		if code == 0 || !strings.Contains(strings.Join(strings.Fields(out+errOut), " "),
			"newer release, in format 99") {
			t.Errorf("%v with a file of a newer release: exit %d, %s%s", args, code, out, errOut)
		}
	}
}

// TestDemoKeepsItsOwn: in a folder of its own. A second demo runs beside the first, without it.
func TestDemoKeepsItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	demo := start(t, []string{"FARHAND_DATA_DIR=" + dir}, farhandBinary, "demo", "--addr", testkit.FreeAddr(t))
	eventually(t, waitLimit, "the demo prints what to try",
		func() bool { return strings.Contains(demo.out.String(), "Ctrl-C") })
	path := filepath.Join(dir, demoFolder)
	if _, err := os.Stat(filepath.Join(path, statefile.Name)); err != nil ||
		!strings.Contains(demo.out.String(), path) {
		t.Errorf("%v\n%s", err, demo.out.String())
	}
	code, out, errOut := command(t, []string{"FARHAND_DATA_DIR=" + dir}, "demo", "--once", "--addr",
		testkit.FreeAddr(t))
	if code != 0 || !strings.Contains(out, "Another demo") {
		t.Errorf("a second demo: exit %d\n%s%s", code, out, errOut)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
