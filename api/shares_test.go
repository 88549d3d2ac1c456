package api_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// byTenantAndUser takes "tenant/user" for a token.
type byTenantAndUser struct{}

func (byTenantAndUser) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	tenant, user, _ := strings.Cut(token, "/")
	return auth.Identity{Tenant: tenant, User: user, Roles: auth.RoleCaller, Credential: "token"}, nil
}

// hostileTenant holds what a test takes.
const hostileTenant = registry.DefaultTenant

// attacks are for rows of the table of shares in docs/operate.md. Each takes all that one tenant can get of a pool,
// while another one works, and returns how long that takes.
var attacks = map[string]func(*testing.T) testkit.Share{
	"authenticated requests":      takeRequests,
	"event streams":               takeStreams,
	"request bodies over 16 KiB":  takeBodies,
	"requests waiting for a call": takeWaits,
	"audit log exports":           takeExports,
	"audit log and usage reads":   takeReads,
	"erasures of persons":         takeErasures,
}

// elsewhere are the other rows, by the folder of the package that has the pool, with the name of the test that does so
// there. A test of the same name in another package is not taken for it.
var elsewhere = map[string]map[string]string{
	".": {
		"responses over 64 KiB":     "TestStalledResponsesMakeRoom",
		"event streams catching up": "TestCatchingUpIsShared",
		"file downloads":            "TestDownloadsAreShared",
		"file uploads":              "TestUploadsAreShared",
	},
	"../agent/chat": {
		"turns":                                  "TestTurnsOfATenant",
		"conversations of running turns (bytes)": "TestLongConversationsOfATenant",
		"conversation cache":                     "TestReadingsAreBounded",
	},
	"../agent/tools/shell": {
		"commands": "TestSlots",
	},
	"../agent/tools/upstream": {
		"decoded answers of MCP servers (bytes)": "TestAnswersOfMCPServersAreShared",
	},
	"../agent/wake": {
		"devices being woken": "TestWakesAreShared",
		"pushes being sent":   "TestWakesAreShared",
	},
	"../agent/tools/browser": {
		"browsers": "TestBrowsersAreShared",
		"snapshots and screenshots of pages (bytes)": "TestPagesAreReadInTurns",
	},
	"..": {
		"devices of group calls":  "TestGroupCallSharesThePod",
		"calls to one MCP server": "TestMCPServerIsShared",
	},
	"../registry/routing": {
		"ended sessions that Redis could not release yet":           "TestUnreleasedAreShared",
		"stored approvals (bytes)":                                  "TestApprovalsOfATenantAreBounded",
		"growth of conversations and of stored completions (bytes)": "TestHistoryOfATenantIsBounded",
		"calls waiting for a device to reconnect":                   "TestWaitsOfATenantAreBounded",
		"output schema checks":                                      "TestChecksOfAnswersAreShared",
		"offered tool definitions (bytes)":                          "TestOfferedToolsAreShared",
		"short store requests about calls":                          "TestTasksAreShared",
		"answers waiting for their call's record, or for the store": "TestTasksAreShared",
		"unwritten feed lines and records":                          "TestTheRecorderHasRoomForOtherTenants",
		"asynchronous and idempotent calls":                         "TestRunningCallsAreShared",
		"calls from other pods to stateful tools here":              "TestErrandsAreShared",
		"deliveries of queued calls":                                "TestDeliveriesAreShared",
	},
	"../ws": {
		"unhandled device messages (bytes)":                   "TestOneTenantDoesNotCrowdOutAnother",
		"decoding of frames over 16 KiB":                      "TestTenantsTakeTurnsToBeDecoded",
		"device messages of running or waiting turns (bytes)": "TestMessagesOfATenantAreBounded",
		"device connections":                                  "TestConnectionsAreShared",
		"attributes of sessions beyond 2 KiB each (bytes)":    "TestAttributesAreShared",
		"tool definition checks and listings":                 "TestRegistrationsAreShared",
		"unsent bytes to devices, beyond 16 KiB each":         "TestListingsAreShared",
		"sessions being opened":                               "TestOpeningsAreShared",
		"OpenClaw nodes that have not said who they are":      "TestNodeHandshakesAreShared",
	},
	"../agent/schema": {
		"outputs being checked (decoded bytes)":                        "TestAnswersOfATenantLeaveRoomForOthers",
		"arguments being validated (bytes)":                            "TestValidationsAreShared",
		"text reads, schema checks and compilations, long validations": "TestValidationsAreShared",
	},
	"../agent/hooks": {
		"requests and responses of one HTTP hook (bytes)": "TestHooksAreShared",
		"requests to one HTTP hook":                       "TestHooksAreShared",
		"approval notifications to one HTTP hook":         "TestNoticesAreShared",
	},
	"../agent/sandbox/workspace": {
		"workspace disk (bytes and files)": "TestTheDiskIsShared",
	},
	"../redisstore/bus": {
		"results on their way to other pods (bytes, plus 8 KiB each)": "TestAnswersOfATenantLeaveRoomForOthers",
		"unread replies of one pod in Redis (bytes)":                  "TestTheListOfAPodIsBounded",
	},
	"../agent/access/pairing": {
		"waiting tools of paired devices (bytes)": "TestWaitingToolsOfATenant",
	},
	"../registry/memory": {
		"approvals, credentials, pairing requests and file attributes, in-memory store (bytes)": "TestDocumentsAreShared",
		"call records, in-memory store":                                 "TestRecordsOfCallsAreShared",
		"call logs, in-memory store":                                    "TestLogsOfCallsAreShared",
		"conversations, in-memory store":                                "TestConversationsAreShared",
		"places, in-memory store":                                       "TestPlacesAreShared",
		"departed sessions and expected tools, in-memory store (bytes)": "TestSessionsThatAreGoneAreShared",
	},
	"../redisstore": {
		"call record reads": "TestReadsAreShared",
	},
	"../agent/access/audit": {
		"unwritten audit log lines": "TestOneTenantDoesNotDropTheLinesOfAnother",
	},
	"../agent/access/usage": {
		"unwritten usage rows": "TestOneTenantDoesNotTakeAllRows",
	},
}

// Each pool of the table in docs/operate.md has an attack: a tenant takes all it can, gets its share, and there is room
// for another tenant. With -v it logs how long that one waits; "other tenant:" begins such a line in every package.
func TestATenantHasItsShare(t *testing.T) {
	text, err := os.ReadFile("../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| pool | of a pod |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:]
	tests, listed := make(map[string]string), 0
	for dir, pools := range elsewhere {
		for pool, test := range pools {
			tests[pool] = test
			listed++
			if !testExists(t, dir, test) {
				t.Errorf("there is no test %s in %s for the pool %q", test, dir, pool)
			}
		}
	}
	if len(rows) != len(attacks)+listed {
		t.Errorf("%d rows in the table, and %d attacks", len(rows), len(attacks)+listed)
	}
	var figures strings.Builder
	defer func() { t.Log(figures.String()) }()
	for _, row := range rows {
		name := strings.TrimSpace(strings.Split(row, "|")[1])
		if attack := attacks[name]; attack != nil {
			t.Run(name, func(t *testing.T) { fmt.Fprintf(&figures, "\n%v", attack(t)) })
		} else if tests[name] == "" {
			t.Errorf("nothing attacks the pool %q", name)
		} else {
			fmt.Fprintf(&figures, "\n%s logs: %s", tests[name], name)
		}
	}
}

// other is another tenant that makes a request again and again, and wants this status.
func (f *fleet) other(r request, status int) *testkit.Beside {
	f.Helper()
	_, pool, _ := strings.Cut(f.Name(), "/")
	return testkit.Alone(f, strings.ReplaceAll(pool, "_", " "), func() error {
		got, err := f.try(sentBy("other/anna", r))
		if err == nil && got.status != status {
			err = fmt.Errorf("%d %s", got.status, got.body)
		}
		return err
	})
}

// testExists looks for a test in the package of a folder.
func testExists(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// sentBy has someone send a request: "tenant/user".
func sentBy(who string, r request) request {
	r.header = http.Header{"Authorization": {"Bearer " + who}}
	return r
}
