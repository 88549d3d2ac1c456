package farhand

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// find runs the online check of one part, with the time limit of the table.
func find(t *testing.T, cfg Config, o Online, part string) Finding {
	t.Helper()
	cfg.RedisTimeout = quickLimit // the machine may be slow
	for _, p := range cfg.onlineProbes(host.Program{}, o) {
		if p.part == part {
			return runProbes(t.Context(), cfg, []probe{p})[0]
		}
	}
	t.Fatalf("there is no check of %s", part)
	return Finding{}
}

// The signs of findings, as farhand doctor prints them.
const (
	isOK      = "ok"
	isMissing = "missing"
	isNote    = "note"
)

// wantFinding fails the test unless a finding has a sign, and says this.
func wantFinding(t *testing.T, name string, f Finding, sign, says string) {
	t.Helper()
	got := isNote
	switch {
	case f.OK:
		got = isOK
	case f.Needed:
		got = isMissing
	}
	if got != sign || !strings.Contains(f.Text, says) {
		t.Errorf("%s: %s, %q; want %s, %q", name, got, f.Text, sign, says)
	}
}

// A model is asked for one token: a wrong key, an unknown model and a server that is not there are found.
func TestDoctorAsksModels(t *testing.T) {
	t.Parallel()
	wantFinding(t, "none", find(t, DefaultConfig(), Online{}, "model"), isOK, "set FARHAND_MODEL")
	server := scripted.OpenAIFunc(t, func(r scripted.Request) scripted.Step {
		switch {
		case r.Model == "missing":
			return scripted.Fail(http.StatusNotFound, "no such model")
		case r.Header.Get("Authorization") != "Bearer right":
			return scripted.Fail(http.StatusUnauthorized, "wrong key")
		case r.MaxTokens != 1:
			t.Errorf("asked for %d tokens", r.MaxTokens)
		}
		return scripted.Reply(scripted.Text("yes"), scripted.Usage(3, 1))
	})
	cfg := DefaultConfig()
	cfg.ModelURL, cfg.Models, cfg.ModelKey = server.URL, []string{"small"}, "right"
	cfg.ThinkingTokens = 2048
	wantFinding(t, "good", find(t, cfg, Online{}, "model"), isOK, "small: answered in")
	cfg.Models = []string{"small", "missing"}
	wantFinding(t, "unknown", find(t, cfg, Online{}, "model"), isMissing, "Check FARHAND_MODEL,")
	cfg.ModelKey = "wrong"
	wantFinding(t, "wrong key", find(t, cfg, Online{}, "model"), isMissing, "Replace FARHAND_MODEL_KEY")
	cfg.ModelURL = "http://127.0.0.1:1/v1"
	wantFinding(t, "no server", find(t, cfg, Online{}, "model"), isMissing, "FARHAND_MODEL_URL")
}

// The identity provider's keys are fetched, and its endpoints if people sign in there.
func TestDoctorAsksTheProvider(t *testing.T) {
	t.Parallel()
	const keys = `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, keys) })
	cfg := DefaultConfig()
	cfg.JWT.Issuer, cfg.JWT.Audience = server.URL, "farhand"
	wantFinding(t, "none", find(t, cfg, Online{}, "identity provider"), isOK, "none is asked")
	cfg.JWT.KeySetURL = server.URL + "/keys"
	wantFinding(t, "keys", find(t, cfg, Online{}, "identity provider"), isOK, "1 usable keys")
	cfg.ConsoleClient = "console"
	wantFinding(t, "no discovery", find(t, cfg, Online{}, "identity provider"), isMissing, "status 404")
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%[1]q,"authorization_endpoint":"%[1]s/a","token_endpoint":"%[1]s/t"}`, server.URL)
	})
	wantFinding(t, "both", find(t, cfg, Online{}, "identity provider"), isOK, "endpoints where people sign in")
	cfg.JWT.KeySetURL = server.URL + "/gone"
	wantFinding(t, "no keys", find(t, cfg, Online{}, "identity provider"), isMissing, "FARHAND_JWT_JWKS_URL")
}

// A file is stored, read and removed: a bucket that can only be listed is found.
func TestDoctorTriesFiles(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.BlobURL = Secret("file://" + dir)
	wantFinding(t, "a folder", find(t, cfg, Online{}, "files"), isOK, "stored, read and removed")
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>")
			return
		}
		_, _ = io.WriteString(w, "<ListBucketResult/>")
	}))
	defer bucket.Close()
	cfg.BlobURL = Secret("s3://files?region=us-east-1&use_path_style=true&endpoint=" + bucket.URL)
	wantFinding(t, "no right to put", find(t, cfg, Online{}, "files"), isMissing, "cannot be stored")
}

// Hooks are reached without a question: OPTIONS has no body, no signature.
func TestDoctorReachesHooks(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); r.Method != http.MethodOptions || len(body) > 0 ||
			r.Header.Get("Webhook-Signature") != "" {
			t.Errorf("%s %q %v", r.Method, body, r.Header)
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
	}))
	defer service.Close()
	cfg := DefaultConfig()
	wantFinding(t, "none", find(t, cfg, Online{}, "hooks"), isOK, "none are configured")
	cfg.HooksFile = filepath.Join(t.TempDir(), "hooks.yaml")
	write := func(url, failure string) {
		text := fmt.Sprintf("hooks:\n- name: guard\n  url: %s\n  secret: whsec_%s\n  phase: before\n"+
			"  allow_private: true\n  on_failure: %s\n", url, strings.Repeat("c2VjcmV0", 6), failure)
		if err := os.WriteFile(cfg.HooksFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(service.URL, "stop")
	wantFinding(t, "reached", find(t, cfg, Online{}, "hooks"), isOK, "guard: answered OPTIONS")
	write("http://127.0.0.1:1/", "stop")
	wantFinding(t, "required", find(t, cfg, Online{}, "hooks"), isMissing, "are stopped")
	write("http://127.0.0.1:1/", "pass")
	wantFinding(t, "optional", find(t, cfg, Online{}, "hooks"), isNote, "go on without it")
}

// Each right that docs/deploy.md does not give, and a pod needs, is found.
func TestDoctorTriesRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	setUser := func(rules ...string) {
		out, err := server.Command(append([]string{"ACL", "SETUSER", "farhand"}, rules...)...)
		if err != nil || out != "OK" {
			t.Fatal(out, err)
		}
	}
	setUser(strings.Fields("on >secret ~fh:* &fh:* +@all -@admin -@dangerous " + // as in docs/deploy.md
		"+info +cluster|slots +cluster|shards +cluster|nodes")...)
	cfg := DefaultConfig()
	cfg.RedisURL = Secret("redis://farhand:secret@" + server.Addr())
	wantFinding(t, "all", find(t, cfg, Online{}, "redis rights"), isOK, "every command")
	setUser("-zadd", "-evalsha", "-ssubscribe")
	f := find(t, cfg, Online{}, "redis rights")
	wantFinding(t, "three are gone", f, isMissing, "may not send 3 commands")
	for _, name := range []string{"zadd", "evalsha", "ssubscribe", "docs/deploy.md"} {
		if !strings.Contains(f.Text, name) {
			t.Errorf("%s is not named: %s", name, f.Text)
		}
	}
	setUser("resetkeys", "~other:*")
	wantFinding(t, "keys", find(t, cfg, Online{}, "redis rights"), isMissing, "NOPERM")
	if out, err := server.Command("KEYS", "*"); strings.TrimSpace(out) != "" || err != nil {
		t.Errorf("left %q, %v", out, err)
	}
	server.Kill()
	wantFinding(t, "no server", find(t, cfg, Online{}, "redis rights"), isMissing, "Redis does not answer")
}

// Clocks that are off are found: of Redis by TIME, of the identity provider by the header Date.
func TestDoctorComparesClocks(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	wantFinding(t, "none", find(t, cfg, Online{}, "clock"), isOK, "no other clock")
	cfg.RedisURL = Secret(redistest.Start(t).URL())
	wantFinding(t, "Redis", find(t, cfg, Online{}, "clock"), isOK, "Redis: ")
	cfg.RedisURL = Secret("redis://" + clockOf(t, time.Hour))
	wantFinding(t, "Redis, an hour late", find(t, cfg, Online{}, "clock"), isNote, "credentials end early")
	cfg.RedisURL = ""
	var ahead time.Duration
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	}))
	defer provider.Close()
	cfg.JWT.KeySetURL = provider.URL
	wantFinding(t, "a provider", find(t, cfg, Online{}, "clock"), isOK, "the identity provider: ")
	ahead = 10 * time.Second
	wantFinding(t, "10 s", find(t, cfg, Online{}, "clock"), isNote, "Synchronize")
	ahead = -time.Minute
	wantFinding(t, "a minute", find(t, cfg, Online{}, "clock"), isMissing, "FARHAND_JWT_LEEWAY")
	cfg.JWT.KeySetURL = "http://127.0.0.1:1/"
	wantFinding(t, "none answers", find(t, cfg, Online{}, "clock"), isNote, "was not read")
}

// clockOf returns the address of what answers TIME as a Redis whose clock is off, and OK to all else.
func clockOf(t *testing.T, ahead time.Duration) string {
	t.Helper()
	return accept(t, func(conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			switch text := strings.ToUpper(lines.Text()); {
			case text == "TIME":
				seconds := fmt.Sprint(time.Now().Add(ahead).Unix())
				fmt.Fprintf(conn, "*2\r\n$%d\r\n%s\r\n$1\r\n0\r\n", len(seconds), seconds)
			case text == "HELLO":
				_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
			case text == "CLIENT" || text == "PING":
				_, _ = io.WriteString(conn, "+OK\r\n")
			}
		}
	})
}

// accept serves connections until the test ends, and returns the address.
func accept(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// Pods are asked for their versions: those of an unfinished upgrade are found, and a pod that does not answer.
func TestDoctorAsksPods(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := DefaultConfig()
	cfg.RedisURL, cfg.RedisTimeout = Secret(server.URL()), quickLimit
	o := Online{Version: "v1.0.0"}
	wantFinding(t, "none", find(t, cfg, o, "pods"), isOK, "no pod is live")
	for i, version := range []string{"v1.0.0", "v1.0.0", "v1.1.0"} {
		pod := cfg
		pod.PodID = fmt.Sprint("pod-", i)
		g, err := New(t.Context(), pod, WithVersion(version))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close(t.Context()) })
		switch i {
		case 0:
			wantFinding(t, "one", find(t, cfg, o, "pods"), isOK, "v1.0.0: pod-0")
			other := find(t, cfg, Online{Version: "v2.0.0"}, "pods")
			wantFinding(t, "another program", other, isNote, "this program is v2.0.0")
		case 1:
			wantFinding(t, "two", find(t, cfg, o, "pods"), isOK, "v1.0.0: pod-0, pod-1")
		case 2:
			wantFinding(t, "an upgrade", find(t, cfg, o, "pods"), isNote, "different versions")
		}
	}
	inAnHour := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	if out, err := server.Command("ZADD", "fh:pods", inAnHour, "gone"); err != nil {
		t.Fatal(out, err)
	}
	wantFinding(t, "a pod that hangs", find(t, cfg, o, "pods"), isNote, "gone did not answer")
	server.Kill()
	wantFinding(t, "no Redis", find(t, cfg, o, "pods"), isMissing, "Redis does not answer")
}

// Certificates that expire soon are found before they do: the gateway's own, that of Redis, and what clients get.
func TestDoctorReadsCertificates(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	wantFinding(t, "none", find(t, cfg, Online{}, "certificates"), isOK, "none is used")
	for name, tt := range map[string]struct {
		until      time.Duration
		sign, says string
	}{
		"a year":    {365 * 24 * time.Hour, isOK, "until"},
		"tomorrow":  {24 * time.Hour, isNote, "in 23 hours: renew it now"},
		"yesterday": {-24 * time.Hour, isMissing, "expired"},
	} {
		own := cfg
		own.TLSCert, own.TLSKey = testkit.Certificate(t, t.TempDir(), time.Now().Add(tt.until))
		wantFinding(t, name+", own", find(t, own, Online{}, "certificates"), tt.sign, tt.says)
		public := httptest.NewUnstartedServer(http.NotFoundHandler())
		public.Config.ErrorLog = log.New(io.Discard, "", 0)
		pair, err := tls.LoadX509KeyPair(own.TLSCert, own.TLSKey)
		if err != nil {
			t.Fatal(err)
		}
		public.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		public.StartTLS()
		defer public.Close()
		o := Online{URL: public.URL, Trust: testkit.TrustOf(t, own.TLSCert)}
		wantFinding(t, name+", public", find(t, cfg, o, "certificates"), tt.sign, tt.says)
		o.Trust = nil
		wantFinding(t, name+", of an unknown authority", find(t, cfg, o, "certificates"), isMissing, "do not accept it")
	}
	url, ca := redistest.TLS(t)
	cfg.RedisURL = Secret(url)
	wantFinding(t, "Redis of an unknown authority", find(t, cfg, Online{}, "certificates"), isMissing,
		"FARHAND_REDIS_CA")
	cfg.RedisCA = ca
	wantFinding(t, "Redis", find(t, cfg, Online{}, "certificates"), isOK, "Redis: for ")
}

// The memory of the machine is compared with the sessions that are configured.
func TestDoctorComparesMemory(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	const advice = "lower FARHAND_MAX_SOCKETS, to 8192 at most"
	if _, err := cfg.fits(1 << 30); err == nil || !strings.Contains(err.Error(), advice) {
		t.Errorf("a GiB: %v", err)
	}
	for _, limit := range []int64{0, 4 << 30} {
		if _, err := cfg.fits(limit); err != nil {
			t.Errorf("%d: %v", limit, err)
		}
	}
	cfg.MaxSockets = 1 << 40
	if f := find(t, cfg, Online{}, "memory"); f.Needed || f.Text == "" {
		t.Errorf("%+v", f)
	}
}

// A proxy that cuts silent WebSockets is found, as is one that does not let them pass, and a wrong token.
func TestDoctorHoldsAWebSocket(t *testing.T) {
	t.Parallel()
	const token = "doctor-test-token-0123456789"
	g := openGateway(t, func(c *Config) { c.Token, c.PingInterval = token, time.Second })
	gateway := httptest.NewServer(g.Handler())
	t.Cleanup(gateway.Close)
	cfg := DefaultConfig()
	cfg.PingInterval = time.Second
	wantFinding(t, "no URL", find(t, cfg, Online{}, "websocket"), isOK, "--url")
	cfg.Token = token
	wantFinding(t, "held", find(t, cfg, Online{URL: gateway.URL}, "websocket"), isOK, "with ")
	wantFinding(t, "a wrong token", find(t, cfg, Online{URL: gateway.URL, Token: "wrong"}, "websocket"), isMissing,
		"status 401")
	cut := accept(t, func(conn net.Conn) { relay(conn, gateway.Listener.Addr().String(), 300*time.Millisecond) })
	wantFinding(t, "cut", find(t, cfg, Online{URL: "http://" + cut}, "websocket"), isMissing, "was cut after")
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	wantFinding(t, "not passed", find(t, cfg, Online{URL: plain.URL}, "websocket"), isMissing, "status 404")
	cfg.PingInterval = 200 * time.Millisecond // and the gateway's is longer than what is held
	wantFinding(t, "no ping", find(t, cfg, Online{URL: silent(t)}, "websocket"), isMissing, "no ping came")
	cfg.Token, cfg.KeysOnly = "", true
	wantFinding(t, "no key", find(t, cfg, Online{URL: gateway.URL}, "websocket"), isNote, "--token")
}

// silent returns the URL of a gateway that pings after an hour.
func silent(t *testing.T) string {
	t.Helper()
	g := openGateway(t, func(c *Config) { c.PingInterval, c.PongTimeout = time.Hour, 2*time.Hour })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return server.URL
}

// relay passes bytes between a connection and an address, and closes both after a silence.
func relay(client net.Conn, addr string, silence time.Duration) {
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	end := time.AfterFunc(silence, func() { client.Close(); server.Close() })
	defer end.Stop()
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			end.Reset(silence)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
}

// With a configuration that is not valid, nothing outside is used.
func TestDoctorFirstChecksTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.BrowserProgram, cfg.DockerHost, cfg.MaxTools = "/nonexistent", "unix:///nonexistent", -1
	found := DiagnoseOnline(t.Context(), cfg, nil, host.Program{}, Online{})
	wantFinding(t, "not valid", found[len(found)-1], isMissing, "not checked before")
}
