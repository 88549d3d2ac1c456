package api_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/erasure"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
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
// while another one works.
var attacks = map[string]func(*testing.T){
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
// for another tenant.
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
	for _, row := range rows {
		name := strings.TrimSpace(strings.Split(row, "|")[1])
		if attack := attacks[name]; attack != nil {
			t.Run(name, attack)
		} else if tests[name] == "" {
			t.Errorf("nothing attacks the pool %q", name)
		}
	}
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

// takeRequests holds requests with calls that a device does not answer.
func takeRequests(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxServed = byTenantAndUser{}, 20 }})
	f.connect(0, session("s1"), silent, tools("t")...)
	ctx, leave := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	refused := make(chan int, 15)
	for user := range cap(refused) {
		calling.Go(func() {
			r := sentBy(hostileTenant+"/"+strconv.Itoa(user), request{
				method: http.MethodPost, path: "/api/tools/t/call", body: `{"timeout_ms":60000}`, ctx: ctx,
			})
			if got, err := f.try(r); err == nil {
				refused <- got.status
			}
		})
	}
	for range cap(refused) - 10 { // those of half of the pool wait for the device
		if status := await(t, "a refusal", refused); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	if r := f.send(sentBy("other/anna", request{path: "/api/tools"})); r.status != 200 {
		t.Errorf("another tenant: %d %s", r.status, r.body)
	}
	leave()
	calling.Wait()
}

// A request without a body is counted once, and given back.
func TestRequestsWithoutABodyAreGivenBack(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxServed = byTenantAndUser{}, 4 }})
	for range 10 {
		r := f.send(sentBy("other/anna", request{method: http.MethodPost, path: "/api/tools/nothing/call"}))
		if r.status == http.StatusTooManyRequests {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
}

// A request counts although it has a body that its handler does not read.
func TestRequestsWithAnUnreadBodyCount(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxServed = byTenantAndUser{}, 4 }})
	ctx, leave := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	refused := make(chan int, 4)
	for user := range cap(refused) {
		streams.Go(func() {
			r := sentBy(hostileTenant+"/"+strconv.Itoa(user), request{
				method: http.MethodGet, path: "/api/events", body: "x", ctx: ctx,
			})
			if got, err := f.try(r); err == nil {
				refused <- got.status
			}
		})
	}
	for range cap(refused) - 2 { // half of the pool is the tenant's
		if status := await(t, "a refusal", refused); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	leave()
	streams.Wait()
}

func takeStreams(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth, c.MaxStreams, c.MaxCallerStreams = byTenantAndUser{}, 20, 4
	}})
	open := 0
	for user := range 5 {
		who := hostileTenant + "/" + strconv.Itoa(user)
		for of := 0; ; of++ {
			if r := f.send(sentBy(who, request{method: http.MethodHead, path: "/api/events"})); r.status != 200 {
				if user == 0 && of != 4 {
					t.Errorf("an identity has %d streams", of)
				}
				break
			}
			f.followAs(who, "/api/events")
			open++
		}
	}
	if open != 10 {
		t.Errorf("a tenant has %d of 20 streams", open)
	}
	f.followAs("other/anna", "/api/events")
}

// takeBodies holds bodies with calls that wait for a person.
func takeBodies(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxRequestBytes = byTenantAndUser{}, 400_000 }})
	f.connect(0, session("phone"), silent, confirmable("camera_snap"))
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	refused := make(chan int, 6)
	for user := range cap(refused) {
		waiting.Go(func() {
			r := sentBy(hostileTenant+"/"+strconv.Itoa(user), request{
				method: http.MethodPost, path: snap, ctx: ctx,
				body: `{"args":{"a":"` + strings.Repeat("a", 49_000) + `"}}`,
			})
			if got, err := f.try(r); err == nil {
				refused <- got.status
			}
		})
	}
	for range cap(refused) - 4 { // those of half of the pool wait
		if status := await(t, "a refusal", refused); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	wantProblem(f.send(sentBy("other/anna", long("sync", 90_000))), 404, registry.CodeToolNotFound)
	leave()
	waiting.Wait()
}

func takeWaits(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth = byTenantAndUser{} }})
	f.connect(0, session("s1"), silent, tools("t")...)
	call := func(who string) string {
		return decode[answer](f.send(sentBy(who, request{
			method: http.MethodPost, path: "/api/tools/t/call", body: `{"mode":"async","timeout_ms":60000}`,
		})), 202).CallID
	}
	wait := "/api/calls/" + call(hostileTenant+"/anna") + "?wait_ms=60000"
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	refused := make(chan int, 600)
	for range cap(refused) {
		waiting.Go(func() {
			r := sentBy(hostileTenant+"/anna", request{path: wait, ctx: ctx})
			if got, err := f.try(r); err == nil {
				refused <- got.status
			}
		})
	}
	for range cap(refused) - 500 { // the rest of an identity waits
		if status := await(t, "a refusal", refused); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	r := f.send(sentBy("other/anna", request{path: "/api/calls/57b9036c-aae2-43d4-9891-bb9e614fc2f8?wait_ms=1"}))
	wantProblem(r, 404, registry.CodeCallNotFound)
	leave()
	waiting.Wait()
}

// takeReads fills the share of a tenant with reads that do not end. The others wait.
func takeReads(t *testing.T) {
	log, arrived := newHeldLog(), make(chan struct{}, 21)
	f := newFleet(t, setup{change: func(c *api.Config) { c.AuditLog, c.Auth = log, arrivals{adminOf{}, arrived} }})
	var reading sync.WaitGroup
	read := func(who string) {
		reading.Go(func() {
			if r, err := f.try(sentBy(who, request{path: "/api/audit"})); err != nil || r.status != http.StatusOK {
				t.Errorf("%s: %d %v", who, r.status, err)
			}
		})
	}
	for i := range cap(arrived) - 1 {
		read(hostileTenant + "/" + strconv.Itoa(i))
	}
	for range cap(arrived) - 1 {
		await(t, "a request", arrived)
	}
	f.eventually("the share of the tenant to be full", func() bool { return log.reading() == 2 })
	read("other/anna")
	f.eventually("another tenant to read", func() bool { return log.reading() == 3 })
	close(log.open)
	reading.Wait()
}

// heldStore erases when its log opens.
type heldStore struct {
	registry.Store
	log *heldLog
}

func (s heldStore) EraseOf(ctx context.Context, _, _ string, _ registry.PersonalKind) (int, error) {
	_, _, err := s.log.ReadAudit(ctx, registry.AuditQuery{})
	return 0, err
}

// takeErasures fills the share of a tenant with erasures that do not end. The others wait.
func takeErasures(t *testing.T) {
	log, arrived := newHeldLog(), make(chan struct{}, 4)
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth = arrivals{adminOf{}, arrived}
		c.Erasure = erasure.New(erasure.Config{Store: heldStore{memory.New(memory.Options{}), log}})
	}})
	var erasing sync.WaitGroup
	erase := func(who string) {
		erasing.Go(func() {
			erasure := request{method: http.MethodDelete, path: "/api/users/anna"}
			if r, err := f.try(sentBy(who, erasure)); err != nil || r.status != http.StatusOK {
				t.Errorf("%s: %d %v", who, r.status, err)
			}
		})
	}
	for range cap(arrived) - 1 {
		erase(hostileTenant + "/root")
	}
	for range cap(arrived) - 1 {
		await(t, "a request", arrived)
	}
	f.eventually("the share of the tenant to be full", func() bool { return log.reading() == 1 })
	erase("other/root")
	f.eventually("another tenant to erase", func() bool { return log.reading() == 2 })
	close(log.open)
	erasing.Wait()
}

func takeExports(t *testing.T) {
	log := newHeldLog()
	f := newFleet(t, setup{change: func(c *api.Config) { c.AuditLog, c.Auth = log, adminOf{} }})
	ctx, leave := context.WithCancel(t.Context())
	var exporting sync.WaitGroup
	statuses := make(chan int, 20)
	for i := range cap(statuses) {
		exporting.Go(func() {
			who := hostileTenant + "/" + strconv.Itoa(i)
			if r, err := f.try(sentBy(who, request{path: "/api/audit?format=jsonl", ctx: ctx})); err == nil {
				statuses <- r.status
			}
		})
	}
	for range cap(statuses) - 8 {
		if status := await(t, "a refusal", statuses); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	other := make(chan reply, 1)
	exporting.Go(func() {
		r, _ := f.try(sentBy("other/anna", request{path: "/api/audit?format=jsonl", ctx: t.Context()}))
		other <- r
	})
	f.eventually("the export of another tenant to read", func() bool { return log.reading() == 3 }) // two are the share
	close(log.open)
	if r := await(t, "its answer", other); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	leave()
	exporting.Wait()
}

// adminOf is byTenantAndUser for admins.
type adminOf struct{ byTenantAndUser }

func (a adminOf) Authenticate(ctx context.Context, r *http.Request, token string) (auth.Identity, error) {
	id, err := a.byTenantAndUser.Authenticate(ctx, r, token)
	id.Admin = true
	return id, err
}
