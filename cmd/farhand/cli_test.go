package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

func unmarshal(raw []byte, v any) error { return json.Unmarshal(raw, v) }

// command runs the program in this process and returns what it printed.
func command(t *testing.T, environ []string, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var stdout, stderr lockedBuffer
	environ = append([]string{noData}, environ...)
	app := application{in: strings.NewReader(""), out: &stdout, err: &stderr, environ: environ, args: args}
	code = app.run(ctx)
	return code, stdout.String(), stderr.String()
}

func TestDemoShowsTheMainJob(t *testing.T) {
	t.Parallel()
	code, out, errOut := command(t, nil, "demo", "--once", "--addr", testkit.FreeAddr(t))
	if code != 0 || !strings.Contains(out, `"state":"succeeded"`) || !strings.Contains(out, "hostname") {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
}

func TestDemoTakesAFreePortWhenItsOwnIsTaken(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	code, out, errOut := command(t, nil, "demo", "--once", "--addr", strings.TrimPrefix(taken.URL, "http://"))
	if code != 0 || !strings.Contains(out, `"state":"succeeded"`) {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
}

const cards = `BEGIN:VCARD
VERSION:4.0
FN:Ada Lovelace
ORG:Analytical Engines;
TEL:+44 20 7946 0001
EMAIL:ada@example.com
END:VCARD
BEGIN:VCARD
VERSION:4.0
FN:Grace Hopper
EMAIL:grace@example.com
END:VCARD
`

// mcpOverStdio is a desktop client that started `farhand mcp`: it finds the tools of the laptop, and calls one.
func mcpOverStdio(t *testing.T, environ []string) {
	t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	var stdout, stderr lockedBuffer
	app := application{
		in: strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + "}}\n" +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"over stdio"},` +
			meta + "}}\n"),
		out: &stdout, err: &stderr, environ: environ, args: []string{"mcp", "--session", "laptop"},
	}
	code := app.run(t.Context())
	for _, want := range []string{`"name":"device_info"`, `"text":"over stdio"`} {
		if code != 0 || !strings.Contains(stdout.String(), want) {
			t.Errorf("farhand mcp: exit %d, no %s in\n%s%s", code, want, stdout.String(), stderr.String())
		}
	}
}

// TestCommandsAgainstAGateway: device, tools, sessions and call as separate programs, as a user runs them.
func TestCommandsAgainstAGateway(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	environ := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	file := filepath.Join(t.TempDir(), "contacts.vcf")
	if err := os.WriteFile(file, []byte(cards), 0o600); err != nil {
		t.Fatal(err)
	}
	device := start(t, environ, farhandBinary, "device", "--session", "laptop", "--name", "my laptop", "--contacts",
		file, "--label", "room=kitchen")
	eventually(t, waitLimit, "the device says what it offers", func() bool {
		return strings.Contains(device.out.String(),
			"session laptop offers device_info, sensors, echo, sleep, contacts")
	})
	mcpOverStdio(t, environ)
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"tools", []string{"tools"}, 0, []string{"NAME", "device_info", "laptop", "contacts"}},
		{"tools as JSON", []string{"tools", "--json", "--name", "echo"}, 0,
			[]string{`"name": "echo"`, `"source": "laptop"`}},
		{"tools grouped", []string{"tools", "--grouped"}, 0, []string{"1 session "}},
		{"sessions", []string{"sessions", "--label", "room=kitchen"}, 0, []string{"SESSION", "laptop", "my laptop"}},
		{"sessions elsewhere", []string{"sessions", "--json", "--label", "room=attic"}, 0, []string{`"sessions": []`}},
		{"call", []string{"call", "echo", `{"text":"hello"}`}, 0, []string{"hello"}},
		{"call as JSON", []string{"call", "sensors", "--json", "--session", "laptop"}, 0,
			[]string{`"state":"succeeded"`, "load"}},
		{"contacts", []string{"call", "contacts", `{"query":"lovelace"}`}, 0, []string{"ada@example.com", `"total":1`}},
		{"wrong arguments", []string{"call", "echo", `{}`}, exitError, []string{"invalid_arguments", "text"}},
		{"no such tool", []string{"call", "nothing"}, exitError, []string{"tool_not_found"}},
		{"not JSON", []string{"call", "echo", `{`}, exitError, []string{"must be a JSON object"}},
		{"wrong token", []string{"tools", "--token", "wrong"}, exitError, []string{"unauthenticated"}},
		{"nobody there", []string{"tools", "--server", "http://127.0.0.1:1"}, exitError,
			[]string{"no answer from the gateway"}},
		{"health", []string{"health"}, 0, nil},
		{"kick", []string{"sessions", "--kick", "laptop"}, 0, nil},
	} {
		code, out, errOut := command(t, environ, c.args...)
		if code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s%s", c.name, code, c.code, out, errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(out+errOut, want) {
				t.Errorf("%s: no %q in\n%s%s", c.name, want, out, errOut)
			}
		}
		if strings.Contains(out+errOut, fleetToken) {
			t.Errorf("%s shows the token", c.name)
		}
	}
	if code := device.exit(t); code == 0 {
		t.Error("a device that was kicked out exits as if nothing was wrong")
	}
}

// usableIn returns the column USABLE of a printed list, by the names of its tools.
func usableIn(t *testing.T, list string) map[string]string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(list), "\n")
	column := strings.Index(lines[0], "USABLE")
	if column < 0 {
		t.Fatalf("no column USABLE in\n%s", list)
	}
	usable := make(map[string]string)
	for _, line := range lines[1:] {
		name, _, _ := strings.Cut(line, " ")
		usable[name] = strings.TrimSpace(line[min(column, len(line)):])
	}
	return usable
}

// TestToolsSayWhetherYouMayCallThem: each caller reads its own rights, also in rows of one tool of many sessions.
func TestToolsSayWhetherYouMayCallThem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	const policy = "version: 1\ntools:\n  - {id: ask, names: [torch], approval: {when: always, except: admin}}\n"
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, "FARHAND_CALL_DENY=echo", "FARHAND_POLICY_FILE="+file)
	ok := func(context.Context, client.Call) (any, error) { return "ok", nil }
	connectDevice(t, p.url, "phone", client.WithTool(client.Tool{Name: "echo", Description: "echoes"}, ok),
		client.WithTool(client.Tool{Name: "torch", Description: "lights"}, ok),
		client.WithTool(client.Tool{Name: "battery", Description: "tells its charge"}, ok))
	const denied = `no: The policy of this gateway does not allow calls of "ech…` // a cell is cut
	for _, c := range []struct {
		name, token string
		want        map[string]string
	}{
		{"admin", fleetToken, map[string]string{"echo": denied, "torch": "yes", "battery": "yes"}},
		{"caller", keyFor(t, p.url, `{"roles":["caller"]}`),
			map[string]string{"echo": denied, "torch": "a person is asked", "battery": "yes"}},
	} {
		environ := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + c.token}
		eventually(t, waitLimit, "the device's tools are listed", func() bool {
			_, out, _ := command(t, environ, "tools")
			return strings.Contains(out, "battery")
		})
		for _, args := range [][]string{{"tools"}, {"tools", "--grouped"}} {
			code, out, errOut := command(t, environ, args...)
			if got := usableIn(t, out); code != 0 || !maps.Equal(got, c.want) {
				t.Errorf("%s: %v: exit %d, %q, want %q\n%s%s", c.name, args, code, got, c.want, out, errOut)
			}
		}
	}
}

func TestDeviceStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	device := start(t, []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}, farhandBinary, "device",
		"--tools", "echo")
	eventually(t, waitLimit, "the device is registered",
		func() bool { return strings.Contains(device.out.String(), "offers echo") })
	device.signal(syscall.SIGINT)
	if code := device.exit(t); code != 0 {
		t.Errorf("exit %d\n%s", code, device.out)
	}
}

func TestServeRefusesStrangersWithoutAToken(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"} {
		code, _, errOut := command(t, []string{"FARHAND_ADDR=" + addr}, "serve")
		if code != exitError || !strings.Contains(errOut, "set FARHAND_TOKEN") {
			t.Errorf("%s: exit %d: %s", addr, code, errOut)
		}
	}
}

func TestConfigCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		environ []string
		code    int
		want    []string
	}{
		{"nothing set", nil, 0, []string{"FARHAND_ADDR", "127.0.0.1:8080", "FARHAND_TOKEN is empty"}},
		{"misspelt", []string{"FARHAND_TOKNE=x"}, 0, []string{"unknown variable: FARHAND_TOKNE"}},
		{"all errors at once", []string{"FARHAND_CALL_TIMEOUT=soon", "FARHAND_MAX_TOOLS=many"}, exitError,
			[]string{"FARHAND_CALL_TIMEOUT", "FARHAND_MAX_TOOLS", "serve would refuse"}},
		{"out of range", []string{"FARHAND_PONG_TIMEOUT=1s", "FARHAND_LOG_FORMAT=xml"}, exitError,
			[]string{"FARHAND_PONG_TIMEOUT", "FARHAND_LOG_FORMAT"}},
		{"bad glob", []string{"FARHAND_CALL_DENY=[a"}, exitError, []string{"FARHAND", "malformed"}},
		{"public without token", []string{"FARHAND_ADDR=0.0.0.0:80"}, exitError, []string{"set FARHAND_TOKEN"}},
		{"short token", []string{"FARHAND_TOKEN=secret"}, 0, []string{"shorter than 16"}},
		{"far Redis in the clear", []string{"FARHAND_REDIS_URL=redis://:geheim@redis.example.com:6379"}, 0,
			[]string{"no TLS"}},
		{"password in the model's URL", []string{"FARHAND_MODEL_URL=https://me:geheim@models.example.com/v1"},
			exitError,
			[]string{"FARHAND_MODEL_URL", "FARHAND_MODEL_KEY"}},
		{"password in a bad URL", []string{"FARHAND_MODEL_URL=https://me:geheim @models.example.com"}, exitError,
			[]string{"FARHAND_MODEL_URL"}},
		{"any origin", []string{"FARHAND_ALLOWED_ORIGINS=*"}, 0, []string{"any web page"}},
	} {
		code, out, errOut := command(t, c.environ, "config")
		if code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s", c.name, code, c.code, errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(out+errOut, want) {
				t.Errorf("%s: no %q in\n%s%s", c.name, want, out, errOut)
			}
		}
		if strings.Contains(out+errOut, "geheim") {
			t.Errorf("%s shows a secret", c.name)
		}
	}
	code, out, _ := command(t, []string{"FARHAND_MAX_FRAME=2MiB"}, "config", "--json")
	var report configReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || len(report.Variables) < 20 {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
}

// TestConfigCommandHidesSecrets: whatever is a secret by its type, variables of later times included.
func TestConfigCommandHidesSecrets(t *testing.T) {
	t.Parallel()
	const marker = "geheim0123456789"
	var environ []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[farhand.Config]()) {
		if f.Type == reflect.TypeFor[farhand.Secret]() {
			environ = append(environ, envPrefix+f.Tag.Get("env")+"="+marker)
		}
	}
	if len(environ) < 3 {
		t.Fatalf("secrets: %v", environ)
	}
	environ = append(environ, "FARHAND_URL=https://me:"+marker+"@gateway.example.com")
	for _, args := range [][]string{{"config"}, {"config", "--json"}} {
		_, out, errOut := command(t, environ, args...)
		if strings.Contains(out+errOut, marker) || strings.Count(out, farhand.Masked) != len(environ) {
			t.Errorf("%v:\n%s%s", args, out, errOut)
		}
	}
}

func TestConfigIsReadWhole(t *testing.T) {
	t.Parallel()
	cfg, err := farhand.LoadConfig([]string{
		"FARHAND_TOKEN=0123456789abcdef0", "FARHAND_ADDR=0.0.0.0:9000", "FARHAND_MAX_FRAME=2MiB",
		"FARHAND_MAX_BODY=4096",
		"FARHAND_CALL_TIMEOUT=10s", "FARHAND_REGISTER_DENY=exec,admin_*", "FARHAND_LOG_LEVEL=debug",
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MaxFrame != 2<<20 || cfg.HTTP.MaxBody != 4096 || cfg.CallTimeout != 10*time.Second ||
		len(cfg.ToolNames.RegisterDeny) != 2 {
		t.Errorf("%+v", cfg)
	}
}
