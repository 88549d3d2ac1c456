package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
)

// A fleet without a token: the first key is written to its store, and makes and revokes the others.
func TestKeysOfAFleetWithoutAToken(t *testing.T) {
	t.Parallel()
	redis := "FARHAND_REDIS_URL=" + redistest.Single(t)
	p := startPod(t, redis, "FARHAND_TOKEN=", "FARHAND_KEYS_ONLY=true", "FARHAND_LOG_LEVEL=debug")
	if status, _ := request(t, http.MethodGet, p.url+"/api/tools", ""); status != http.StatusUnauthorized {
		t.Errorf("somebody without a key: %d", status)
	}
	code, first, errOut := command(t, []string{redis},
		"keys", "create", "--store", "--role", "admin", "--name", "first")
	admin := strings.TrimSpace(first)
	if code != 0 || !strings.HasPrefix(admin, "fhk_") || strings.Contains(errOut, admin) {
		t.Fatalf("exit %d\n%s", code, errOut)
	}
	env := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + admin}
	code, out, errOut := command(t, env,
		"keys", "create", "--name", "ci", "--tools", "camera_*", "--expires", "1h", "--json")
	var made keyRow
	if err := unmarshal([]byte(out), &made); code != 0 || err != nil || made.Key == "" || made.ExpiresAt == "" {
		t.Fatalf("exit %d, %v\n%s", code, err, errOut)
	}
	if code, _, errOut := command(t, []string{env[0], "FARHAND_TOKEN=" + made.Key}, "tools"); code != 0 {
		t.Errorf("the key lists no tools: %s", errOut)
	}
	code, out, _ = command(t, env, "keys", "list")
	if code != 0 || !strings.Contains(out, made.ID) || !strings.Contains(out, "camera_*") ||
		strings.Contains(out, made.Key) {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, _, errOut := command(t, env, "keys", "revoke", made.ID); code != 0 {
		t.Errorf("not revoked: %s", errOut)
	}
	for _, args := range [][]string{
		{"revoke", made.ID}, {"revoke"}, {"revoke", "x", "--user", "y"}, {"create", "--expires", "1ms"},
		{"create", "--role", "root"}, {"create", "--store"},
	} {
		if code, _, errOut := command(t, env, append([]string{"keys"}, args...)...); code != exitError || errOut == "" {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
	}
	tryOperatorsCommands(t, []string{redis, env[0]})
	for _, secret := range []string{admin, made.Key} {
		if strings.Contains(p.out.String(), secret) {
			t.Error("the log has a key")
		}
	}
}
