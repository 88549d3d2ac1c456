package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// TestAnEmptiedRedisIsRestored: a file of farhand export, imported into an empty Redis, brings back what
// TestOneMachineRemembers checks: the device goes on without pairing again, and keys work. Files that are not whole,
// and another passphrase, change nothing.
func TestAnEmptiedRedisIsRestored(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (url string, masters []string){
		"single": func(t *testing.T) (string, []string) {
			url := redistest.Single(t)
			return url, []string{url}
		},
		"cluster": func(t *testing.T) (string, []string) {
			cluster := redistest.Cluster(t)
			var masters []string
			for _, s := range cluster.Masters {
				masters = append(masters, s.URL())
			}
			return cluster.URL, masters
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, masters := open(t)
			testRestoredRedis(t, url, masters)
		})
	}
}

func testRestoredRedis(t *testing.T, url string, masters []string) {
	model := scripted.OpenAI(t, scripted.Reply(scripted.Text("Good day."), scripted.Usage(10, 2)))
	redisURL, folder := "FARHAND_REDIS_URL="+url, t.TempDir()
	m := &lasting{T: t, settings: append(agentSettings(providerOpenAI, model), askingAlways(t), redisURL,
		"FARHAND_PAIRING=open", "FARHAND_JWT_ISSUER=issuer", "FARHAND_JWT_AUDIENCE=farhand",
		"FARHAND_JWT_SECRET="+restartSecret)}
	m.pod = startPod(t, m.settings...)
	m.prepare()
	m.check("before")
	audit := m.run("audit", "--action", "device.update", "--export")

	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	passphrase := "--passphrase-file=" + write("passphrase", "0123456789abcdef\n")
	file := filepath.Join(folder, "farhand.export")
	code, out, errOut := command(t, []string{redisURL}, "export", file, passphrase)
	if info, err := os.Stat(file); code != 0 || err != nil || info.Mode().Perm() != 0o600 ||
		!strings.Contains(out, "keys of documents") {
		t.Fatalf("exit %d, %v\n%s%s", code, err, out, errOut)
	}
	m.pod.signal(syscall.SIGKILL)
	m.pod.exit(t)
	keys := onServers(t, masters, func(c *redis.Client) int64 {
		_ = c.FlushAll(context.Background())
		return c.DBSize(context.Background()).Val()
	})
	text, err := os.ReadFile(file)
	if keys != 0 || err != nil {
		t.Fatal(keys, err)
	}
	for what, args := range map[string][]string{
		"another passphrase": {file, "--passphrase-file=" + write("other", "fedcba9876543210")},
		"a cut file":         {write("cut", string(text[:len(text)-100])), passphrase},
		"another file":       {write("text", "hello"), passphrase},
	} {
		code, _, errOut := command(t, []string{redisURL}, append([]string{"import"}, args...)...)
		keys := onServers(t, masters, func(c *redis.Client) int64 { return c.DBSize(context.Background()).Val() })
		if code != exitError || !strings.Contains(errOut, "nothing was imported") || keys != 0 {
			t.Errorf("%s: exit %d, %d keys\n%s", what, code, keys, errOut)
		}
	}
	for _, want := range []string{"written:", "there already:"} {
		code, out, errOut := command(t, []string{redisURL}, "import", file, passphrase)
		if code != 0 || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("exit %d, %s%s", code, out, errOut)
		}
	}
	m.pod = startPodAt(t, strings.TrimPrefix(m.pod.url, "http://"), m.settings...)
	m.check("restored")
	if now := m.run("audit", "--action", "device.update", "--export"); now != audit || audit == "" {
		t.Errorf("the audit log has %q, not %q", now, audit)
	}
}

// onServers adds up what f returns for each server.
func onServers(t *testing.T, urls []string, f func(*redis.Client) int64) (sum int64) {
	t.Helper()
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(options)
		sum += f(c)
		c.Close()
	}
	return sum
}
