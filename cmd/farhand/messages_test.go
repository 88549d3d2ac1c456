package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// TestMistakesAreExplained: an error quotes what the person typed, and says what to do.
func TestMistakesAreExplained(t *testing.T) {
	t.Parallel()
	p := startPod(t, "FARHAND_BUILTIN_TOOLS=time")
	connectDevice(t, p.url, "phone", echoTool())
	there := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	nowhere := testkit.FreeAddr(t)
	secureRedis, _ := redistest.TLS(t)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer secure.Close()
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		code    int
		want    []string
		never   []string
	}{
		{"a tool that nearly exists", there, []string{"call", "ehco"}, exitError,
			[]string{"tool_not_found", "Did you mean echo?"}, nil},
		{"a tool that is far from any", there, []string{"call", "photograph"}, exitError, []string{"tool_not_found"},
			[]string{"Did you mean"}},
		{"a server without a scheme", nil, []string{"tools", "--server", strings.TrimPrefix(p.url, "http://"),
			"--token", fleetToken}, 0,
			[]string{"echo"}, nil},
		{"a variable that nearly exists", []string{"FARHAND_REDIS_ULR=x"}, []string{"config"}, 0,
			[]string{"unknown variable: FARHAND_REDIS_ULR; did you mean FARHAND_REDIS_URL?"}, nil},
		{"values of other kinds", []string{"FARHAND_CALL_TIMEOUT=30", "FARHAND_MAX_TOOLS=many", "FARHAND_MAX_FRAME=big",
			"FARHAND_ALLOW_DEBUG=perhaps", "FARHAND_FRAME_RATE=fast", "FARHAND_LOG_LEVEL=loud"}, []string{"serve"},
			exitError,
			[]string{`FARHAND_CALL_TIMEOUT: "30" is not a duration; for example FARHAND_CALL_TIMEOUT=30s`,
				`FARHAND_MAX_TOOLS: "many" is not a whole number; for example FARHAND_MAX_TOOLS=128`,
				`FARHAND_MAX_FRAME: "big" is not a size`, `FARHAND_ALLOW_DEBUG: "perhaps" is not true or false`,
				`FARHAND_FRAME_RATE: "fast" is not a number`,
				`FARHAND_LOG_LEVEL: "loud" is not debug, info, warn or error`},
			[]string{"time.Duration", "parse error", "field"}},
		{"no Redis", []string{"FARHAND_REDIS_URL=redis://:hidden@" + nowhere, "FARHAND_ADDR=127.0.0.1:0"},
			[]string{"serve"}, exitError,
			[]string{"Redis does not answer", nowhere, "start one: redis-server", "unset FARHAND_REDIS_URL"},
			[]string{"hidden"}},
		{"arguments without quotes", there, []string{"call", "echo", `{"a":`, "1}"}, exitError,
			[]string{"farhand call TOOL [ARGS]", "quotes"}, []string{"arg(s)"}},
		{"no arguments", there, []string{"approve", "show"}, exitError, []string{"farhand approve show ID"},
			[]string{"arg(s)"}},
		{"a tool of the gateway", there, []string{"call", "time"}, 0, []string{"in the gateway"}, []string{"session"}},
		{"an audience without a key", []string{"FARHAND_JWT_AUDIENCE=me"}, []string{"config"}, exitError,
			[]string{"FARHAND_JWT_AUDIENCE: requires a key"},
			[]string{"mean nothing", "FARHAND_JWT_ISSUER:"}},
		{"settings that belong together", []string{"FARHAND_FRAME_BURST=0"}, []string{"config"}, exitError,
			[]string{"FARHAND_FRAME_RATE, FARHAND_FRAME_BURST: must"}, nil},
		{"a slash in a password", []string{"FARHAND_REDIS_URL=redis://:secr/et@localhost:6379"}, []string{"config"},
			exitError,
			[]string{"password must be written as %2F"}, []string{"secr/et"}},
		{"a question mark in a password", []string{"FARHAND_REDIS_URL=redis://u:secr?et@localhost"}, []string{"config"},
			exitError, []string{"a '?' as %3F"}, []string{"secr?et"}},
		{"Redis with a certificate of our own",
			[]string{"FARHAND_REDIS_URL=" + secureRedis, "FARHAND_ADDR=127.0.0.1:0"},
			[]string{"serve"}, exitError, []string{"certificate of Redis cannot be verified", "set FARHAND_REDIS_CA"},
			[]string{"start one", "Redis does not answer"}},
		{"a gateway with a certificate of its own", []string{"FARHAND_URL=" + secure.URL}, []string{"tools"}, exitError,
			[]string{"certificate of " + secure.URL + " cannot be verified", "--ca (FARHAND_CA)"},
			[]string{"is it running"}},
		{"keys alone", []string{"FARHAND_KEYS_ONLY=true", "FARHAND_REDIS_URL=redis://:hidden@" + nowhere,
			"FARHAND_ADDR=127.0.0.1:0", "KUBERNETES_SERVICE_HOST=here"}, []string{"serve"}, exitError,
			[]string{"Redis does not answer"}, []string{"FARHAND_TOKEN", "no credential"}},
		{"the version", nil, []string{"version"}, 0, []string{"farhand ", "go1."}, nil},
		{"completion of tools", there, []string{"__complete", "call", ""}, 0, []string{"echo"}, nil},
		{"completion of sessions", there, []string{"__complete", "call", "echo", "--session", ""}, 0, []string{"phone"},
			nil},
	} {
		code, out, errOut := command(t, c.environ, c.args...)
		for late := time.Now().Add(waitLimit); strings.Contains(errOut, "deadline exceeded") &&
			time.Now().Before(late); {
			code, out, errOut = command(t, c.environ, c.args...) // the machine stood still for longer than it waits
		}
		if code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s%s", c.name, code, c.code, out, errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(out+errOut, want) {
				t.Errorf("%s: no %q in\n%s%s", c.name, want, out, errOut)
			}
		}
		for _, never := range c.never {
			if strings.Contains(out+errOut, never) {
				t.Errorf("%s: %q in\n%s%s", c.name, never, out, errOut)
			}
		}
	}
}

// TestHealthFollowsTheAddress: in a container the check has the pod's own environment.
func TestHealthFollowsTheAddress(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"0.0.0.0:" + port, ":" + port, "127.0.0.1:" + port} {
		if code, out, errOut := command(t, []string{"FARHAND_ADDR=" + addr}, "health"); code != 0 {
			t.Errorf("%s: exit %d\n%s%s", addr, code, out, errOut)
		}
	}
	if got := urlOf("[::]:8080"); got != "http://[::1]:8080" {
		t.Errorf("[::]:8080 is asked at %s", got)
	}
	if code, _, _ := command(t, []string{"FARHAND_ADDR=" + testkit.FreeAddr(t)}, "health"); code == 0 {
		t.Error("a gateway that is not there is healthy")
	}
}

// TestDemoSaysThatItsPortIsTaken, and prints commands that go with the port it took and the program that was started.
func TestDemoSaysThatItsPortIsTaken(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	addr := strings.TrimPrefix(taken.URL, "http://")
	demo := start(t, nil, farhandBinary, "demo", "--addr", addr)
	eventually(t, waitLimit, "the demo prints what to try",
		func() bool { return strings.Contains(demo.out.String(), "Ctrl-C") })
	out := demo.out.String()
	if !strings.Contains(out, addr+" is taken") || !strings.Contains(out, farhandBinary+" tools") {
		t.Errorf("printed:\n%s", out)
	}
	_, rest, _ := strings.Cut(out, "export FARHAND_URL=")
	url, _, _ := strings.Cut(rest, "\n")
	if code, list, errOut := command(t, []string{"FARHAND_URL=" + url}, "tools"); code != 0 ||
		!strings.Contains(list, "device_info") {
		t.Errorf("the printed URL %q: exit %d\n%s%s", url, code, list, errOut)
	}
	for args, want := range map[string]string{
		"/tmp/go-build123/b001/exe/farhand": "go run ./cmd/farhand", "farhand": "farhand",
		"./bin/farhand": "./bin/farhand",
	} {
		if got := invocation([]string{args}); got != want {
			t.Errorf("started as %s it tells to type %s, want %s", args, got, want)
		}
	}
}

// TestCallWithoutWaiting and with progress: the call's id is printed and leads to its record; what the device reports
// is shown while it works.
func TestCallWithoutWaiting(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	connectDevice(t, p.url, "phone", client.WithTool(client.Tool{Name: "film", Description: "reports"},
		func(_ context.Context, call client.Call) (any, error) {
			call.Progress(1, 4, "lens open")
			return "a film", nil
		}))
	environ := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	code, out, errOut := command(t, environ, "call", "film", "--async")
	if code != 0 || !strings.Contains(errOut, "/api/calls/"+strings.TrimSpace(out)) {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	status, raw := request(t, http.MethodGet, p.url+"/api/calls/"+strings.TrimSpace(out)+"?wait_ms=10000", "")
	var record struct{ State string }
	if err := json.Unmarshal(raw, &record); err != nil || status != http.StatusOK || record.State != "succeeded" {
		t.Errorf("%d %s", status, raw)
	}
	code, out, errOut = command(t, environ, "call", "film", "--progress")
	if code != 0 || strings.TrimSpace(out) != "a film" || !strings.Contains(errOut, "25 %  lens open") ||
		!strings.Contains(errOut, "succeeded") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}

// TestDeviceSaysWhyItCannotConnect: no listener, an unknown host, a rejected token.
func TestDeviceSaysWhyItCannotConnect(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	for want, args := range map[string][]string{
		"no gateway answers at this address": {"--server", testkit.FreeAddr(t)},
		"host name does not resolve":         {"--server", "http://gateway.invalid"},
		"unauthenticated":                    {"--server", p.url, "--token", "wrong"},
	} {
		device := start(t, nil, farhandBinary, append([]string{"device"}, args...)...)
		eventually(t, waitLimit, want, func() bool { return strings.Contains(device.out.String(), want) })
		if out := device.out.String(); strings.Contains(want, "address") && !strings.Contains(out, `"retry_in":"`) {
			t.Errorf("when it tries again is not told in words: %s", out)
		}
	}
}

// TestARefusedRoleIsLogged: a device with a caller's key is told 403, which its WebSocket client may show without a
// word. The log of the pod has the reason.
func TestARefusedRoleIsLogged(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	status, body := request(t, http.MethodPost, p.url+"/api/keys", `{"roles":["caller"],"user_id":"anna"}`)
	var made struct{ Key string }
	if err := json.Unmarshal(body, &made); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	code, _, errOut := command(t, []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + made.Key}, "device")
	if code != exitError || !strings.Contains(errOut, "The role device is required") {
		t.Errorf("exit %d\n%s", code, errOut)
	}
	eventually(t, waitLimit, "the reason is logged", func() bool {
		out := p.out.String()
		return strings.Contains(out, `"refused":"role"`) && strings.Contains(out, "The role device is required") &&
			strings.Contains(out, `"user":"anna"`)
	})
}

// TestDemoReadsTheEnvironment: a model works in the demo, a web page may be let in, what is refused is logged, and the
// variables that do not count are named.
func TestDemoReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAIFunc(t, func(scripted.Request) scripted.Step {
		return scripted.Reply(scripted.Text("I am on this machine."))
	})
	environ := append(agentSettings(providerOpenAI, model), "FARHAND_TOKEN="+fleetToken,
		"FARHAND_REDIS_URL=redis://redis.example.com", "FARHAND_JWT_SECRET=0123456789abcdef0123456789abcdef",
		"FARHAND_KEYS_ONLY=false", "FARHAND_ALLOWED_ORIGINS=http://one.example.com", "FARHAND_MAX_TOOL=7")
	demo := start(t, environ, farhandBinary, "demo", "--addr", testkit.FreeAddr(t), "--allow-origin",
		"http://localhost:5173")
	eventually(t, waitLimit, "the demo prints what to try",
		func() bool { return strings.Contains(demo.out.String(), "api/sessions") })
	_, rest, _ := strings.Cut(demo.out.String(), "export FARHAND_URL=")
	url, _, _ := strings.Cut(rest, "\n")
	environ = []string{"FARHAND_URL=" + url, "FARHAND_TOKEN=" + fleetToken}
	if code, out, errOut := command(t, environ, "chat", "--session", demoSession, "where are you?"); code != 0 ||
		!strings.Contains(out, "I am on this machine.") {
		t.Errorf("chat: exit %d\n%s%s", code, out, errOut)
	}
	for origin, want := range map[string]int{
		"http://localhost:5173": 200, "http://one.example.com": 200, "http://two.example.com": 403,
	} {
		req, err := http.NewRequest(http.MethodGet, url+"/api/tools", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		req.Header.Set("Authorization", "Bearer "+fleetToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", origin, resp.StatusCode, want)
		}
	}
	for _, want := range []string{
		"only: FARHAND_JWT_SECRET, FARHAND_KEYS_ONLY, FARHAND_REDIS_URL.", `"did_you_mean":"FARHAND_MAX_TOOLS"`,
		" chat --session demo", "Bearer $FARHAND_TOKEN", "request refused", "two.example.com",
	} {
		eventually(t, waitLimit, "the demo says "+want,
			func() bool { return strings.Contains(demo.out.String(), want) })
	}
	if strings.Contains(demo.out.String(), fleetToken) {
		t.Error("it prints the token")
	}
}
