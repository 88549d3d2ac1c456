package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// TestCommandKind names the keys of redisstore as its documentation lists them.
func TestCommandKind(t *testing.T) {
	for line, want := range map[string]string{
		`"evalsha" "abc" "2" "fh:{default/s1}" "fh:{default/s1}:gone" "60000"`:     "EVALSHA session",
		`"HGETALL" "fh:{default/a-activity}"`:                                      "HGETALL session",
		`"GET" "fh:default:version"`:                                               "GET version",
		`"GET" "fh:default:set:Mx_4-a"`:                                            "GET set",
		`"GET" "fh:default:spec:abc"`:                                              "GET spec",
		`"ZCARD" "fh:default:members:Mx_4-a"`:                                      "ZCARD members",
		`"ZRANGEBYLEX" "fh:default:offers" "-" "+"`:                                "ZRANGEBYLEX offers",
		`"ZCARD" "fh:default:sessions"`:                                            "ZCARD sessions",
		`"ZCARD" "fh:default:label:site=a"`:                                        "ZCARD label",
		`"XADD" "fh:default:activity" "*" "v" "x"`:                                 "XADD activity",
		`"evalsha" "abc" "2" "fh:default:{call:c1}" "fh:default:{call:c1}:events"`: "EVALSHA call",
		`"evalsha" "abc" "1" "fh:{pod:p1}:replies" "60000" "x"`:                    "EVALSHA replies",
		`"blmpop" "1" "1" "fh:{pod:p1}:replies" "left"`:                            "BLMPOP replies",
		`"ZCARD" "fh:{pod:p1}:sessions"`:                                           "ZCARD sessions of a pod",
		`"evalsha" "abc" "1" "fh:pods" "p1"`:                                       "EVALSHA pods",
		`"SET" "fh:ping" "1"`:                                                      "SET ping",
		`"PUBLISH" "fh:pod:p1" "E..."`:                                             "PUBLISH channel of a pod",
		`"PUBLISH" "fh:pod:p1" "P"`:                                                "PUBLISH of a probe",
		`"INFO"`:                                                                   "INFO",
	} {
		if got := commandKind("+1.2 [0 127.0.0.1:1] " + line); got != want {
			t.Errorf("%s\n  is %q, want %q", line, got, want)
		}
	}
	if got := commandKind(`+1.2 [0 lua] "RPUSH" "fh:{pod:p1}:replies" "x"`); got != "" {
		t.Errorf("a command of a script is %q", got)
	}
}

func TestRedisUseOfACall(t *testing.T) {
	use := bench.RedisUse{"xadd": {Count: 4, Micros: 20}, "evalsha": {Count: 2, Micros: 30}}
	if total := redisTotal(use); total != (bench.CommandUse{Count: 6, Micros: 50}) {
		t.Errorf("together %v", total)
	}
	if got, want := redisText(use, 2), "evalsha 1.00 × 15.0 µs, xadd 2.00 × 5.0 µs"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// TestNoRedisIsStartedForNothing: only some rows need one in this process.
func TestNoRedisIsStartedForNothing(t *testing.T) {
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	script := "#!/bin/sh\ntouch " + started + "\n"
	if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	o, _ := quick(t)
	o.Only = []string{"no row has this name"}
	if _, err := measureTargets(t.Context(), o, false); err != nil {
		t.Fatal(err)
	}
	if exists(started) {
		t.Error("a Redis was started")
	}
}
