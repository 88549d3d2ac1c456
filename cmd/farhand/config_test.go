package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/testkit"
)

// servingWriter is the log of a gateway that is to stop as soon as it serves.
type servingWriter struct {
	lockedBuffer
	stop context.CancelFunc
}

func (w *servingWriter) Write(p []byte) (int, error) {
	n, err := w.lockedBuffer.Write(p)
	if strings.Contains(string(p), "msg=serving") {
		w.stop()
	}
	return n, err
}

// serveStarts reports whether `farhand serve` starts, and what it says.
func serveStarts(t *testing.T, environ []string) (bool, string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), waitLimit)
	defer stop()
	log := &servingWriter{stop: stop}
	app := application{in: strings.NewReader(""), out: log, err: log, environ: environ, args: []string{"serve"}}
	code := app.run(ctx)
	return code == 0, log.String()
}

// configPasses reports whether `farhand config` has no fault to find, and what it says.
func configPasses(t *testing.T, environ []string) (bool, string) {
	t.Helper()
	code, out, errOut := command(t, environ, "config", "--json")
	_, found, _ := strings.Cut(out, `"errors"`)
	return code == 0, found + errOut
}

// quietEnvironment is what every gateway of these tests has: it touches nothing but folders of the test.
func quietEnvironment(t *testing.T, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	return append([]string{
		"FARHAND_ADDR=127.0.0.1:0", "FARHAND_LOG_FORMAT=text", "FARHAND_BLOB_URL=file://" + dir + "/blobs",
		"FARHAND_WORKSPACE_DIR=" + dir + "/workspaces", "FARHAND_BROWSER=/nonexistent/chromium",
		"FARHAND_DOCKER_HOST=unix:///nonexistent/docker.sock", "FARHAND_DATA_DIR=" + dir + "/state",
	}, more...)
}

// valuesOf returns values that a variable might be given: some that a type allows at its edges, and some that it does
// not.
func valuesOf(f reflect.StructField) []string {
	switch reflect.New(f.Type).Elem().Interface().(type) {
	case bool:
		return []string{"true", "false", "perhaps"}
	case time.Duration:
		return []string{"-1s", "0", "99ms", "46s", "25h", "100000h", "d"}
	case farhand.ByteSize:
		return []string{"-1", "0", "1KiB", "1MiB", "5MiB", "2GiB"}
	case int, []int:
		return []string{"-1", "0", "1", "21", "100000", "x"}
	case float64:
		return []string{"-1", "0", "0.5", "1e9", "NaN", "x"}
	case slog.Level:
		return []string{"debug", "info", "x"} // others hide that it serves
	default:
		return []string{
			"x", "a,b", "none", "1.2.3.4", ":0", "http://127.0.0.1:1", "https://gateway.example.com", "/dev/null",
			"/dev/null/x", "/nonexistent/file", "*", "[",
		}
	}
}

// Whatever one variable is set to: `farhand config` passes what `farhand serve` starts with, and nothing else. Starting
// takes a fifth of a second, so values that pass are started together, those of ten variables at a time.
func TestConfigPassesWhatServeStartsWith(t *testing.T) {
	t.Parallel()
	for variables := range slices.Chunk(envconf.Variables(reflect.ValueOf(farhand.Config{}), envPrefix), 10) {
		var rounds [][]string // each has at most one value of each variable
		for _, v := range variables {
			passing := 0
			for _, value := range valuesOf(v.Field) {
				setting := v.Name + "=" + value
				if setting == "FARHAND_DATA_DIR=/nonexistent/file" { // which serve would make
					continue
				}
				if passes, said := configPasses(t, quietEnvironment(t, setting)); !passes {
					if starts, log := serveStarts(t, quietEnvironment(t, setting)); starts {
						t.Errorf("%s: config refuses it, and serve starts:\n%s\n%s", setting, said, log)
					}
					continue
				}
				if passing == len(rounds) {
					rounds = append(rounds, nil)
				}
				rounds[passing] = append(rounds[passing], setting)
				passing++
			}
		}
		for _, settings := range rounds {
			startTogether(t, settings)
		}
	}
}

// startTogether fails the test unless serve starts with the settings, each of which passes alone. Those that do not
// pass together are started in halves.
func startTogether(t *testing.T, settings []string) {
	t.Helper()
	if passes, said := configPasses(t, quietEnvironment(t, settings...)); !passes {
		if len(settings) == 1 {
			t.Fatalf("%s: passes at times only: %s", settings[0], said)
		}
		startTogether(t, settings[:len(settings)/2])
		startTogether(t, settings[len(settings)/2:])
		return
	}
	if starts, log := serveStarts(t, quietEnvironment(t, settings...)); !starts {
		t.Errorf("%s: config passes, and serve does not start:\n%s", strings.Join(settings, " "), log)
	}
}

// Settings that cannot be used together, or name what is not there: config, doctor and serve refuse them, and say the
// same.
func TestConfigDoctorAndServeRefuse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	noKey := filepath.Join(t.TempDir(), "keys.pem")
	if err := os.WriteFile(noKey, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	jwt := []string{"FARHAND_JWT_ISSUER=https://id.example.com", "FARHAND_JWT_AUDIENCE=farhand"}
	cert, key := testkit.Certificate(t, t.TempDir(), time.Now().AddDate(1, 0, 0))
	_, otherKey := testkit.Certificate(t, t.TempDir(), time.Now().AddDate(1, 0, 0))
	for _, c := range []struct {
		settings []string
		says     string
	}{
		{[]string{"FARHAND_TLS_CERT=" + cert}, "FARHAND_TLS_CERT, FARHAND_TLS_KEY: set both or neither"},
		{[]string{"FARHAND_TLS_KEY=" + key}, "set both or neither"},
		{[]string{"FARHAND_TLS_CERT=" + cert, "FARHAND_TLS_KEY=" + otherKey}, "does not match"},
		{[]string{"FARHAND_TLS_CERT=" + cert, "FARHAND_TLS_KEY=/nonexistent/key.pem"}, "/nonexistent/key.pem"},
		{[]string{"FARHAND_TLS_CERT=/dev/null", "FARHAND_TLS_KEY=" + key}, "/dev/null: not a regular file"},
		{[]string{"FARHAND_TLS_CERT=" + noKey, "FARHAND_TLS_KEY=" + key}, "FARHAND_TLS_CERT"},
		{[]string{"FARHAND_BUILTIN_TOOLS=read,canvs"}, "FARHAND_BUILTIN_TOOLS"},
		{[]string{"FARHAND_TOOLS_OFF=read"}, "FARHAND_TOOLS_OFF"},
		{[]string{"FARHAND_TOOLS_OFF=torch"}, "FARHAND_TOOLS_OFF"},
		{[]string{"FARHAND_KEYS_ONLY=true", noData}, "FARHAND_KEYS_ONLY"},
		{[]string{"FARHAND_MAX_TOOLS=many"}, "FARHAND_MAX_TOOLS"},
		{[]string{"FARHAND_ALLOW_DEBUG=perhaps"}, "FARHAND_ALLOW_DEBUG"},
		{[]string{"FARHAND_ADDR=127.0.0.1:9", "FARHAND_METRICS_ADDR=127.0.0.1:9"}, "FARHAND_METRICS_ADDR"},
		{[]string{"FARHAND_BLOB_URL=ftp://files.example.com"}, "FARHAND_BLOB_URL"},
		{[]string{"FARHAND_BLOB_URL=file:///dev/null/files"}, "FARHAND_BLOB_URL"},
		{[]string{"FARHAND_BUILTIN_TOOLS=read", "FARHAND_WORKSPACE_DIR=/dev/null/files"}, "FARHAND_WORKSPACE_DIR"},
		{append(jwt, "FARHAND_JWT_KEY_FILE=/nonexistent/keys.pem"), "FARHAND_JWT_KEY_FILE"},
		{append(jwt, "FARHAND_JWT_KEY_FILE="+noKey), "FARHAND_JWT_KEY_FILE"},
		{[]string{"FARHAND_REDIS_URL=redis://127.0.0.1:1", "FARHAND_REDIS_TIMEOUT=31s"}, "FARHAND_REDIS_TIMEOUT"},
		{[]string{"FARHAND_REDIS_REPLICAS=-1"}, "FARHAND_REDIS_REPLICAS"},
		{[]string{"FARHAND_REDIS_URL=rediss://127.0.0.1:1", "FARHAND_REDIS_CA=/nonexistent/ca.pem"},
			"FARHAND_REDIS_CA"},
		{[]string{"FARHAND_REDIS_URL=redis://127.0.0.1:1", "FARHAND_REDIS_CA=" + noKey}, "FARHAND_REDIS_CA"},
		{[]string{"FARHAND_REDIS_URL=rediss://127.0.0.1:1", "FARHAND_REDIS_TLS_CERT_FILE=" + cert},
			"FARHAND_REDIS_TLS_CERT_FILE, FARHAND_REDIS_TLS_KEY_FILE: redis: set both or neither"},
		{[]string{"FARHAND_REDIS_URL=rediss://127.0.0.1:1", "FARHAND_REDIS_TLS_CERT_FILE=" + cert,
			"FARHAND_REDIS_TLS_KEY_FILE=" + otherKey}, "FARHAND_REDIS_TLS_KEY_FILE"},
		{[]string{"FARHAND_TOKEN_FILE=/nonexistent/token"}, "FARHAND_TOKEN_FILE: open /nonexistent/token"},
		{[]string{"FARHAND_TOKEN_FILE=" + noKey, "FARHAND_TOKEN=" + fleetToken},
			"FARHAND_TOKEN and FARHAND_TOKEN_FILE are both set"},
		{[]string{"FARHAND_MODEL_KEY_FILE=/dev/null"}, "FARHAND_MODEL_KEY_FILE: /dev/null: not a regular file"},
		{[]string{"FARHAND_TOKEN_PREVIOUS=" + fleetToken}, "FARHAND_TOKEN_PREVIOUS: requires FARHAND_TOKEN"},
	} {
		environ := quietEnvironment(t, c.settings...)
		name := strings.Join(c.settings, " ")
		if ok, said := configPasses(t, environ); ok || !strings.Contains(said, c.says) {
			t.Errorf("%s: config passes: %t\n%s", name, ok, said)
		}
		if ok, log := serveStarts(t, environ); ok || !strings.Contains(log, c.says) {
			t.Errorf("%s: serve starts: %t\n%s", name, ok, log)
		}
		code, out, errOut := command(t, environ, "doctor", "--json")
		if code != 1 || !strings.Contains(out, c.says) {
			t.Errorf("%s: doctor exits %d\n%s%s", name, code, out, errOut)
		}
	}
}

// TestTokenOfAFile: a pod and the commands read the token from a file. A flag wins over it, and a file that is missing
// is named.
func TestTokenOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(fleetToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, "FARHAND_TOKEN=", "FARHAND_TOKEN_FILE="+file)
	for _, c := range []struct {
		settings, args []string
		says           string // empty: it succeeds
	}{
		{[]string{"FARHAND_TOKEN_FILE=" + file}, nil, ""},
		{[]string{"FARHAND_TOKEN_FILE=/nonexistent/token"}, []string{"--token", fleetToken}, ""},
		{[]string{"FARHAND_TOKEN_FILE=/nonexistent/token"}, nil, "FARHAND_TOKEN_FILE: open /nonexistent/token"},
		{[]string{"FARHAND_TOKEN_FILE=" + file, "FARHAND_TOKEN=" + fleetToken}, nil, "are both set"},
		{nil, nil, "unauthenticated"},
	} {
		code, out, errOut := command(t, c.settings, append([]string{"tools", "--server", p.url}, c.args...)...)
		if (code == 0) != (c.says == "") || !strings.Contains(errOut, c.says) {
			t.Errorf("%v %v: exit %d\n%s%s", c.settings, c.args, code, out, errOut)
		}
	}
}

// TestDoctorSaysWhatIsUsed: the model, whose credentials are accepted, and the tools, without a secret.
func TestDoctorSaysWhatIsUsed(t *testing.T) {
	t.Parallel()
	said := func(settings ...string) map[string]string {
		t.Helper()
		_, out, errOut := command(t, quietEnvironment(t, settings...), "doctor", "--json")
		var findings []farhand.Finding
		if err := json.Unmarshal([]byte(out), &findings); err != nil {
			t.Fatalf("%v\n%s%s", err, out, errOut)
		}
		texts := make(map[string]string)
		for _, f := range findings {
			texts[f.Part] = f.Text
			if strings.Contains(f.Text, "hidden") {
				t.Errorf("%s: %s", f.Part, f.Text)
			}
		}
		return texts
	}
	for of, tt := range map[string]struct {
		settings []string
		want     map[string]string
	}{
		"nothing": {nil, map[string]string{
			"model": "set FARHAND_MODEL", "identity": "need no credential", "tools": "require a model"}},
		"all": {[]string{"FARHAND_MODEL=small,large", "FARHAND_MODEL_URL=http://127.0.0.1:11434/v1",
			"FARHAND_MODEL_KEY=hidden-key", "FARHAND_JWT_ISSUER=https://id.example.com", "FARHAND_JWT_AUDIENCE=farhand",
			"FARHAND_JWT_SECRET=hidden-0123456789abcdef0123456789", "FARHAND_BUILTIN_TOOLS=time,read"},
			map[string]string{
				"model":    "small (the default), large, of openai at http://127.0.0.1:11434/v1, with a key",
				"identity": "JSON Web Tokens of https://id.example.com for farhand, signed with FARHAND_JWT_SECRET",
				"tools":    "time, read"}},
		"the default tools": {[]string{"FARHAND_MODEL=small"}, map[string]string{
			"model": "small, of openai at the provider's own address, without a key", "tools": "time, sessions"}},
		"a token, and no tool": {[]string{"FARHAND_TOKEN=hidden-0123456789abcdef", "FARHAND_BUILTIN_TOOLS=none"},
			map[string]string{"identity": "FARHAND_TOKEN, which makes its holder an admin", "tools": "none"}},
	} {
		got := said(tt.settings...)
		for part, want := range tt.want {
			if !strings.Contains(got[part], want) {
				t.Errorf("%s: %s: %q, want %q", of, part, got[part], want)
			}
		}
	}
}
