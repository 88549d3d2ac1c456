package farhand_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/auth"
)

// TestDataDirOfPrograms: a program that names a folder gets a gateway that remembers, one that does not gets one that
// forgets. A folder serves one gateway at a time.
func TestDataDirOfPrograms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("HOME", os.Getenv("XDG_STATE_HOME"))
	cfg := farhand.Config{Addr: "127.0.0.1:0", KeysOnly: true, DataDir: dir, BlobURL: "none"}
	key, _, err := farhand.CreateKey(t.Context(), cfg, auth.KeyRequest{Roles: []string{"admin"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds what the first left
		g, err := farhand.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if status := statusOf(t, g, key); status != http.StatusOK {
			t.Errorf("the key: %d", status)
		}
		if _, err := farhand.New(t.Context(), cfg); !errors.Is(err, farhand.ErrDataInUse) {
			t.Errorf("a second gateway: %v", err)
		}
		if text, err := cfg.State(); err != nil || !strings.Contains(text, dir) || !strings.Contains(text, "running") {
			t.Errorf("the state: %q, %v", text, err)
		}
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	for _, none := range []string{"", farhand.NoData} {
		cfg.DataDir = none
		if _, err := farhand.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "FARHAND_KEYS_ONLY") {
			t.Errorf("keys without a store that keeps them: %v", err)
		}
		g, err := farhand.New(t.Context(), farhand.Config{Addr: "127.0.0.1:0", DataDir: none, BlobURL: "none"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("XDG_STATE_HOME")); err != nil || len(left) > 0 {
		t.Errorf("the user's state folder has %v, %v", left, err)
	}
}

func TestStateDir(t *testing.T) {
	home := "/home/ada/.local/state/farhand"
	if os.Getuid() == 0 {
		home = "/var/lib/farhand"
	}
	for setting, want := range map[string]string{
		"XDG_STATE_HOME=/state": "/state/farhand", "XDG_STATE_HOME=relative": home, "X=": home,
	} {
		if dir, err := farhand.StateDir([]string{setting, "HOME=/home/ada"}); err != nil || dir != want {
			t.Errorf("%s: %s, %v, want %s", setting, dir, err, want)
		}
	}
	state := t.TempDir() // workspaces follow the same rule
	t.Setenv("XDG_STATE_HOME", state)
	cfg := farhand.Config{Token: adminToken}
	cfg.Builtins, cfg.Sandbox = []string{"read"}, farhand.SandboxNone
	start(t, cfg)
	if made, err := os.ReadDir(filepath.Join(state, "farhand")); err != nil || len(made) == 0 {
		t.Errorf("the state folder has %v, %v", made, err)
	}
}

// statusOf returns the status of a request with a key.
func statusOf(t *testing.T, g *farhand.Gateway, key string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/api/tools", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	return w.Code
}
