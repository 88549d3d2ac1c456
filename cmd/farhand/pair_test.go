package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// waitingCode is how `farhand device --pair` shows a code.
var waitingCode = regexp.MustCompile(`farhand pair approve ([0-9A-Z]{4}-[0-9A-Z]{4})`)

// A device is paired, looked at, renamed and ended by the commands alone. Its second program has the stored credential.
func TestPairingByCommands(t *testing.T) {
	t.Parallel()
	p := startPod(t, "FARHAND_PAIRING=open", "FARHAND_LOG_LEVEL=debug")
	env := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	// run runs a command that is to succeed and print certain things.
	run := func(want string, args ...string) {
		t.Helper()
		code, out, errOut := command(t, env, args...)
		for part := range strings.SplitSeq(want, " ") {
			if code != 0 || !strings.Contains(out, part) {
				t.Errorf("%v: exit %d, want %q\n%s%s", args, code, part, out, errOut)
			}
		}
	}
	file := t.TempDir() + "/credential.json"
	stranger := []string{"FARHAND_URL=" + p.url, "HOME=" + t.TempDir()}
	device := start(t, stranger, farhandBinary, "device", "--pair", "--credential", file, "--device", "cam-1")
	var code string
	eventually(t, waitLimit, "the code is shown", func() bool {
		if found := waitingCode.FindStringSubmatch(device.out.String()); found != nil {
			code = found[1]
		}
		return code != ""
	})
	run("cam-1", "pair", "list")
	run("pending cam-1", "pair", "show", code)
	run("approved Door", "pair", "approve", code, "--name", "Door", "--tools", "echo")
	eventually(t, waitLimit, "the device offers what was approved", func() bool {
		_, raw := request(t, http.MethodGet, p.url+"/api/tools", "")
		return strings.Contains(string(raw), `"echo"`)
	})
	run("cam-1 Door echo WAITING", "devices", "list")
	ask := func(id string) (asked struct{ Code, Secret string }) {
		_, raw := request(t, http.MethodPost, p.url+"/pair", `{"device_id":"`+id+`","device_name":"[approved]"}`)
		if json.Unmarshal(raw, &asked) != nil || asked.Code == "" {
			t.Errorf("%q is not asked for: %s", id, raw)
		}
		return asked
	}
	imitation := ask("\u0441am-1") // a Cyrillic с
	for _, args := range [][]string{{"list"}, {"show", imitation.Code}, {"reject", imitation.Code}} {
		run("\"\u0441am-1\" looks like \"cam-1\" \\u0441am-1 \"[approved]\"", append([]string{"pair"}, args...)...)
	}
	run("cam-1 1 tool", "devices", "list")
	run("echo approved sleep waits", "devices", "show", "cam-1")
	run("", "devices", "rename", "cam-1", "Gate")
	run("Gate", "devices", "list", "--json")
	run("fhd_", "devices", "rotate", "cam-1", "--overlap", "1h") // the device keeps its former credential so long
	run("", "devices", "approve", "cam-1")
	run("no tool waits", "devices", "approve", "cam-1")
	run("", "devices", "reject", "cam-1", "echo")
	run("echo rejected", "devices", "show", "cam-1")
	run("", "devices", "revoke", "cam-1")
	eventually(t, waitLimit, "the device has ended", func() bool {
		select {
		case <-device.done:
			return true
		default:
			return false
		}
	})
	again := append(stranger, "FARHAND_TOKEN=")
	status, _, errOut := command(t, again, "device", "--pair", "--credential", file, "--device", "cam-1")
	if status != exitError || !strings.Contains(errOut, file) {
		t.Errorf("a revoked device is not told how to be paired again: exit %d, %s", status, errOut)
	}

	var asked struct{ Code, Secret string }
	if _, raw := request(t, http.MethodPost, p.url+"/pair", "{}"); json.Unmarshal(raw, &asked) != nil {
		t.Fatalf("not asked: %s", raw)
	}
	run("rejected", "pair", "reject", asked.Code)
	for _, args := range [][]string{
		{"pair", "approve", asked.Code}, {"pair", "show"}, {"pair", "approve", "x"}, {"devices", "show", "cam-1"},
		{"devices", "reject", "cam-1"}, {"devices", "approve", "cam-1", "x"}, {"devices", "rotate", "cam-1"},
	} {
		if code, _, errOut := command(t, env, args...); code != exitError || errOut == "" {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
	}
	for what, secret := range map[string]string{
		"code": code, "another code": asked.Code, "secret": asked.Secret, "credential": "fhd_", "request": "fhr_",
	} {
		if strings.Contains(p.out.String(), secret) {
			t.Errorf("the log has the %s", what)
		}
	}
}
