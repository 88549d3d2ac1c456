package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
)

// A fleet that makes a key at each start has one: in a file of its owner, not in the output.
func TestKeyFileIsMadeOnce(t *testing.T) {
	t.Parallel()
	redis := "FARHAND_REDIS_URL=" + redistest.Single(t)
	file := filepath.Join(t.TempDir(), "admin.key")
	create := func(file string) (code int, out string) {
		code, out, errOut := command(t, []string{redis}, "keys", "create", "--store", "--role", "admin", "--file", file)
		return code, out + errOut
	}
	if code, out := create(filepath.Join(file, "missing", "key")); code == 0 || strings.Contains(out, "fhk_") {
		t.Errorf("a file that cannot be written: exit %d\n%s", code, out)
	}
	code, out := create(file)
	first, err := os.ReadFile(file)
	if err != nil || code != 0 || strings.Contains(out, strings.TrimSpace(string(first))) {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the file: %v %v", info.Mode(), err)
	}
	if code, out := create(file); code != 0 || !strings.Contains(out, "exists") {
		t.Errorf("the second time: exit %d\n%s", code, out)
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(first) {
		t.Errorf("the file changed: %v", err)
	}
	p := startPod(t, redis, "FARHAND_TOKEN=", "FARHAND_KEYS_ONLY=true")
	env := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + strings.TrimSpace(string(first))}
	code, out, errOut := command(t, env, "keys", "list", "--json")
	if code != 0 || strings.Count(out, `"id"`) != 1 {
		t.Errorf("there is not one key: exit %d\n%s%s", code, out, errOut)
	}
	if status, _ := request(t, http.MethodGet, p.url+"/api/keys", ""); status != http.StatusUnauthorized {
		t.Errorf("without the key: %d", status)
	}
}
