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

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/api"
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

// pools are the rows of the table of shares in docs/operate.md, each with what takes all that one tenant can get of it
// while another one works, or with the name of the test that does so where the pool is.
var pools = map[string]struct {
	attack    func(*testing.T)
	elsewhere string
}{
	"event streams":                             {attack: takeStreams},
	"bodies of requests over 16 KiB":            {attack: takeBodies},
	"requests that wait for a call":             {attack: takeWaits},
	"exports of the audit log":                  {attack: takeExports},
	"answers over 64 KiB":                       {elsewhere: "TestStalledResponsesMakeRoom"},
	"reads of the audit log and the usage":      {elsewhere: "TestAThousandExports"},
	"event streams that catch up":               {elsewhere: "TestShares"},
	"downloads of files":                        {elsewhere: "TestOneLinkDoesNotTakeAllTransfers"},
	"uploads of files":                          {elsewhere: "TestOneSessionDoesNotTakeAllUploads"},
	"turns":                                     {elsewhere: "TestTurnsOfATenant"},
	"commands":                                  {elsewhere: "TestSlots"},
	"browsers":                                  {elsewhere: "TestSessions"},
	"calls of an MCP server":                    {elsewhere: "TestMCPServerIsShared"},
	"calls that wait for a device to come back": {elsewhere: "TestWaitsOfAUserAreBounded"},
	"asynchronous calls, and those with an idempotency key":     {elsewhere: "TestRunningCallsAreShared"},
	"calls of another pod for a tool that keeps something here": {elsewhere: "TestErrandsAreShared"},
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
	if len(rows) != len(pools) {
		t.Errorf("%d rows in the table, and %d attacks", len(rows), len(pools))
	}
	for _, row := range rows {
		name := strings.TrimSpace(strings.Split(row, "|")[1])
		p, ok := pools[name]
		switch {
		case !ok:
			t.Errorf("nothing attacks the pool %q", name)
		case p.attack != nil:
			t.Run(name, p.attack)
		case !testExists(t, p.elsewhere):
			t.Errorf("there is no test %s for the pool %q", p.elsewhere, name)
		}
	}
}

// testExists looks for a test in the packages whose pools have tests of their own.
func testExists(t *testing.T, name string) bool {
	for _, dir := range []string{
		".", "..", "../internal/share", "../registry/routing", "../agent/chat", "../agent/builtin/shell",
		"../agent/builtin/browser",
	} {
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
	}
	return false
}

// sentBy has someone send a request: "tenant/user".
func sentBy(who string, r request) request {
	r.header = http.Header{"Authorization": {"Bearer " + who}}
	return r
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

func takeBodies(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxRequestBytes = byTenantAndUser{}, 4<<20 }})
	f.connect(0, session("s1"), silent, tools("t")...)
	accepted := 0
	for user := 0; ; user++ {
		r := f.send(sentBy(hostileTenant+"/"+strconv.Itoa(user), long("async", 500_000)))
		if r.status == http.StatusTooManyRequests {
			break
		}
		if r.status != http.StatusAccepted {
			t.Fatalf("%d %s", r.status, r.body)
		}
		accepted++
	}
	if accepted != 4 { // 2 MiB
		t.Errorf("a tenant holds %d bodies of half a megabyte, of 4 MiB", accepted)
	}
	wantProblem(f.send(sentBy("other/anna", long("sync", 900_000))), 404, registry.CodeToolNotFound)
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
	f.eventually("the export of another tenant to read", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return log.active == 3 // two are the share of the first tenant
	})
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
