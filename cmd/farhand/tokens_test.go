package main

import (
	"strings"
	"testing"
)

// A weak token is refused where strangers can try to guess it, and the refusal says how to make another one.
func TestServeRefusesWeakTokens(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"x", "fifteen-letters", strings.Repeat("a", 40)} {
		for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
			code, _, errOut := command(t, []string{"FARHAND_ADDR=" + addr, "FARHAND_TOKEN=" + token}, "serve")
			if code != exitError || !strings.Contains(errOut, "openssl rand -base64 32") ||
				!strings.Contains(errOut, "FARHAND_ALLOW_WEAK_TOKEN") {
				t.Errorf("%s at %s: exit %d: %s", token, addr, code, errOut)
			}
		}
		for _, allowed := range [][]string{
			{"FARHAND_ADDR=127.0.0.1:0"}, {"FARHAND_ADDR=0.0.0.0:0", "FARHAND_ALLOW_WEAK_TOKEN=true"},
		} {
			code, out, errOut := command(t, append(allowed, "FARHAND_TOKEN="+token), "config")
			if code != 0 || !strings.Contains(out+errOut, "can be guessed") {
				t.Errorf("%s with %v: exit %d: %s%s", token, allowed, code, out, errOut)
			}
		}
	}
	code, out, errOut := command(t, []string{"FARHAND_TOKEN=" + fleetToken}, "config")
	if code != 0 || !strings.Contains(out+errOut, "every device can do what an administrator can") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
}
