package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const longWork = "text reads, schema checks and compilations, long validations"

// poolRows are the rows of the table of shares in docs/operate.md that say how much of a pool a tenant gets.
var poolRows = map[string]string{
	"answer_bytes":               "responses over 64 KiB",
	"argument_bytes":             "arguments being validated (bytes)",
	"attribute_bytes":            "attributes of sessions beyond 2 KiB each (bytes)",
	"body_bytes":                 "request bodies over 16 KiB",
	"browsers":                   "browsers",
	"catching_up":                "event streams catching up",
	"checked_answer_bytes":       "outputs being checked (decoded bytes)",
	"checked_answers":            "output schema checks",
	"deliveries":                 "deliveries of queued calls",
	"checking_schemas":           longWork,
	"commands":                   "commands",
	"compiling_schemas":          longWork,
	"decoding":                   "decoding of frames over 16 KiB",
	"decoding_large":             "decoding of frames over 16 KiB",
	"downloads":                  "file downloads",
	"errands":                    "calls from other pods to stateful tools here",
	"erasures":                   "erasures of persons",
	"exports":                    "audit log exports",
	"hook_bytes":                 "requests and responses of one HTTP hook (bytes)",
	"hook_messages":              "approval notifications to one HTTP hook",
	"hook_questions":             "requests to one HTTP hook",
	"large_argument_bytes":       "arguments being validated (bytes)",
	"large_checked_answer_bytes": "outputs being checked (decoded bytes)",
	"late_answers":               "answers waiting for their call's record, or for the store",
	"mcp_answer_bytes":           "decoded answers of MCP servers (bytes)",
	"mcp_calls":                  "calls to one MCP server",
	"message_bytes":              "device messages of running or waiting turns (bytes)",
	"node_handshakes":            "OpenClaw nodes that have not said who they are",
	"offered_bytes":              "offered tool definitions (bytes)",
	"opening":                    "sessions being opened",
	"page_bytes":                 "snapshots and screenshots of pages (bytes)",
	"parsing":                    longWork,
	"pushes":                     "pushes being sent",
	"reading":                    "audit log and usage reads",
	"registering":                "tool definition checks and listings",
	"requests":                   "authenticated requests",
	"returning_calls":            "calls waiting for a device to reconnect",
	"running_calls":              "asynchronous and idempotent calls",
	"sockets":                    "device connections",
	"streams":                    "event streams",
	"tasks":                      "short store requests about calls",
	"turn_bytes":                 "conversations of running turns (bytes)",
	"turns":                      "turns",
	"unsent_bytes":               "unsent bytes to devices, beyond 16 KiB each",
	"uploads":                    "file uploads",
	"group_calls":                "devices of group calls",
	"validating":                 longWork,
	"validating_answers":         longWork,
	"waiting_requests":           "requests waiting for a call",
	"wakes":                      "devices being woken",
}

// noRow are the pools that have none, and why.
var noRow = map[string]string{
	"idle_connections": "nobody knows yet whose a connection is; the text below the table says which one is closed",
}

// Each pool has a row that says what a tenant gets of it, or a reason why there is none.
func TestPoolsHaveARow(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shares, _ := strings.Cut(string(text), "\n## Shares\n")
	shares, _, _ = strings.Cut(shares, "\n## ")
	for _, pool := range poolNames {
		switch row, why := poolRows[pool], noRow[pool]; {
		case (row == "") == (why == ""):
			t.Errorf("the pool %q has a row or a reason to have none, one of both", pool)
		case row != "" && !strings.Contains(shares, "\n| "+row+" |"):
			t.Errorf("the pool %q: there is no row %q", pool, row)
		case why != "" && !strings.Contains(shares, "`"+pool+"`"):
			t.Errorf("the pool %q: the text says nothing of it", pool)
		}
	}
	for pool := range poolRows {
		if !slices.Contains(poolNames, pool) {
			t.Errorf("there is no pool %q", pool)
		}
	}
	if len(poolRows)+len(noRow) != len(poolNames) {
		t.Errorf("%d rows and %d reasons for %d pools", len(poolRows), len(noRow), len(poolNames))
	}
}
