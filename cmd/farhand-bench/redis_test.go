package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCommandKind names the keys of redisstore as its documentation lists them.
func TestCommandKind(t *testing.T) {
	for line, want := range map[string]string{
		`+1.2 [0 127.0.0.1:1] "evalsha" "abc" "2" "fh:{default/s1}" "fh:{default/s1}:gone" "60000"`:     "EVALSHA session",
		`+1.2 [0 127.0.0.1:1] "HGETALL" "fh:{default/a-activity}"`:                                      "HGETALL session",
		`+1.2 [0 127.0.0.1:1] "GET" "fh:default:version"`:                                               "GET version",
		`+1.2 [0 127.0.0.1:1] "GET" "fh:default:set:Mx_4-a"`:                                            "GET set",
		`+1.2 [0 127.0.0.1:1] "GET" "fh:default:spec:abc"`:                                              "GET spec",
		`+1.2 [0 127.0.0.1:1] "ZCARD" "fh:default:members:Mx_4-a"`:                                      "ZCARD members",
		`+1.2 [0 127.0.0.1:1] "ZRANGEBYLEX" "fh:default:offers" "-" "+"`:                                "ZRANGEBYLEX offers",
		`+1.2 [0 127.0.0.1:1] "ZCARD" "fh:default:sessions"`:                                            "ZCARD sessions",
		`+1.2 [0 127.0.0.1:1] "ZCARD" "fh:default:label:site=a"`:                                        "ZCARD label",
		`+1.2 [0 127.0.0.1:1] "XADD" "fh:default:activity" "*" "v" "x"`:                                 "XADD activity",
		`+1.2 [0 127.0.0.1:1] "evalsha" "abc" "2" "fh:default:{call:c1}" "fh:default:{call:c1}:events"`: "EVALSHA call",
		`+1.2 [0 127.0.0.1:1] "evalsha" "abc" "1" "fh:{pod:p1}:replies" "60000" "x"`:                    "EVALSHA replies",
		`+1.2 [0 127.0.0.1:1] "blmpop" "1" "1" "fh:{pod:p1}:replies" "left"`:                            "BLMPOP replies",
		`+1.2 [0 127.0.0.1:1] "ZCARD" "fh:{pod:p1}:sessions"`:                                           "ZCARD sessions of a pod",
		`+1.2 [0 127.0.0.1:1] "evalsha" "abc" "1" "fh:pods" "p1"`:                                       "EVALSHA pods",
		`+1.2 [0 127.0.0.1:1] "SET" "fh:ping" "1"`:                                                      "SET ping",
		`+1.2 [0 127.0.0.1:1] "PUBLISH" "fh:pod:p1" "E..."`:                                             "PUBLISH channel of a pod",
		`+1.2 [0 127.0.0.1:1] "PUBLISH" "fh:pod:p1" "P"`:                                                "PUBLISH of a probe",
		`+1.2 [0 127.0.0.1:1] "INFO"`:                                                                   "INFO",
		`+1.2 [0 lua] "RPUSH" "fh:{pod:p1}:replies" "x"`:                                                "",
	} {
		if got := commandKind(line); got != want {
			t.Errorf("%s\n  is %q, want %q", line, got, want)
		}
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
