package redisconn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/redistest"
)

// TestServersAreExamined: rights, clocks and certificates of servers, without a right to run scripts.
func TestServersAreExamined(t *testing.T) {
	server := redistest.Start(t)
	options := redisconn.Options{URL: server.URL(), Timeout: testkit.Limit}
	if refused, err := redisconn.Missing(t.Context(), options); len(refused) != 0 || err != nil {
		t.Errorf("all rights: %q, %v", refused, err)
	}
	if ahead, err := redisconn.Skew(t.Context(), options); ahead.Abs() > time.Minute || err != nil {
		t.Errorf("the clock of this machine: %v, %v", ahead, err)
	}
	if found, err := redisconn.Certificates(t.Context(), options); found != nil || err != nil {
		t.Errorf("without TLS: %v, %v", found, err)
	}
	out, err := server.Command("ACL", "SETUSER", "few", "on", ">pw", "~fh:*", "&fh:*", "+@all", "-eval", "-subscribe")
	if err != nil || out != "OK" {
		t.Fatal(out, err)
	}
	options.URL = "redis://few:pw@" + server.Addr()
	if refused, err := redisconn.Missing(t.Context(), options); len(refused) != 2 || err != nil ||
		!strings.Contains(refused[0], "'eval'") || !strings.Contains(refused[1], "'subscribe'") {
		t.Errorf("two are missing: %q, %v", refused, err)
	}
	secure := redisconn.Options{Timeout: testkit.Limit}
	secure.URL, secure.CAFile = redistest.TLS(t)
	if found, err := redisconn.Certificates(t.Context(), secure); len(found) != 1 || err != nil {
		t.Errorf("with TLS: %v, %v", found, err)
	}
	server.Kill()
	if _, err := redisconn.Skew(t.Context(), options); err == nil {
		t.Error("a server that is not there has a clock")
	}
}
