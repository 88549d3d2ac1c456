package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const longWork = "texts that are read, schemas that are checked or compiled, long validations"

// poolRows are the rows of the table of shares in docs/operate.md that say how much of a pool a tenant gets.
var poolRows = map[string]string{
	"answer_bytes":               "answers over 64 KiB",
	"argument_bytes":             "arguments that are validated",
	"body_bytes":                 "bodies of requests over 16 KiB",
	"browsers":                   "browsers",
	"catching_up":                "event streams that catch up",
	"checked_answer_bytes":       "memory of those, decoded",
	"checked_answers":            "answers that are checked by an output schema",
	"checking_schemas":           longWork,
	"commands":                   "commands",
	"compiling_schemas":          longWork,
	"decoding":                   "decoding of frames over 16 KiB",
	"decoding_large":             "decoding of frames over 16 KiB",
	"downloads":                  "downloads of files",
	"errands":                    "calls of another pod for a tool that keeps something here",
	"exports":                    "exports of the audit log",
	"hook_bytes":                 "bytes of those questions, and their answers",
	"hook_messages":              "messages of approvals to an HTTP hook",
	"hook_questions":             "questions to an HTTP hook",
	"large_argument_bytes":       "arguments that are validated",
	"large_checked_answer_bytes": "memory of those, decoded",
	"late_answers":               "answers that wait for the record of their call",
	"mcp_calls":                  "calls of an MCP server",
	"message_bytes":              "bytes of messages of devices whose turns run or wait",
	"offered_bytes":              "bytes of the tools that sessions offer",
	"opening":                    "sessions that are being opened",
	"parsing":                    longWork,
	"reading":                    "reads of the audit log and the usage",
	"registering":                "definitions of tools that are checked, and lists of them that are made",
	"requests":                   "requests with a credential",
	"returning_calls":            "calls that wait for a device to come back",
	"running_calls":              "asynchronous calls, and those with an idempotency key",
	"sockets":                    "connections of devices",
	"streams":                    "event streams",
	"tasks":                      "short exchanges with the store about calls",
	"turn_bytes":                 "bytes of conversations whose turns run",
	"turns":                      "turns",
	"unsent_bytes":               "bytes that wait to be sent to devices, but for 16 KiB of each",
	"uploads":                    "uploads of files",
	"validating":                 longWork,
	"validating_answers":         longWork,
	"waiting_requests":           "requests that wait for a call",
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
