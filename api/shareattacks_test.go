package api_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/erasure"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// takeRequests holds requests with calls that a device does not answer.
func takeRequests(t *testing.T) testkit.Share {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxServed = byTenantAndUser{}, 20 }})
	f.connect(0, session("s1"), silent, tools("t")...)
	other := f.other(request{path: "/api/tools"}, http.StatusOK)
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
	defer calling.Wait()
	defer leave()
	return other.Crowded()
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

func takeStreams(t *testing.T) testkit.Share {
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth, c.MaxStreams, c.MaxCallerStreams = byTenantAndUser{}, 20, 4
	}})
	other := f.other(request{method: http.MethodHead, path: "/api/events"}, http.StatusOK)
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
	share := other.Crowded()
	f.followAs("other/anna", "/api/events")
	return share
}

// takeBodies holds bodies with calls that wait for a person.
func takeBodies(t *testing.T) testkit.Share {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.MaxRequestBytes = byTenantAndUser{}, 400_000 }})
	f.connect(0, session("phone"), silent, confirmable("camera_snap"))
	other := f.other(long("sync", 90_000), http.StatusNotFound)
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
	defer waiting.Wait()
	defer leave()
	return other.Crowded()
}

func takeWaits(t *testing.T) testkit.Share {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth = byTenantAndUser{} }})
	f.connect(0, session("s1"), silent, tools("t")...)
	call := func(who string) string {
		return decode[answer](f.send(sentBy(who, request{
			method: http.MethodPost, path: "/api/tools/t/call", body: `{"mode":"async","timeout_ms":60000}`,
		})), 202).CallID
	}
	other := f.other(request{path: "/api/calls/57b9036c-aae2-43d4-9891-bb9e614fc2f8?wait_ms=1"}, http.StatusNotFound)
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
	defer waiting.Wait()
	defer leave()
	return other.Crowded()
}

// takeReads fills the share of a tenant with reads that do not end. The others wait.
func takeReads(t *testing.T) testkit.Share {
	log, arrived := newHeldLog(), make(chan struct{}, 1000)
	log.of = hostileTenant
	f := newFleet(t, setup{change: func(c *api.Config) { c.AuditLog, c.Auth = log, arrivals{adminOf{}, arrived} }})
	other := f.other(request{path: "/api/audit"}, http.StatusOK)
	defer f.fill(20, arrived, log, 2, request{path: "/api/audit"})()
	return other.Crowded()
}

// fill sends requests of as many users of the hostile tenant, and returns when its share of reads is at the log. It
// returns a function that has all answered.
func (f *fleet) fill(users int, arrived chan struct{}, log *heldLog, share int, r request) (answered func()) {
	f.Helper()
	for len(arrived) > 0 {
		<-arrived
	}
	var asking sync.WaitGroup
	for i := range users {
		asking.Go(func() {
			who := hostileTenant + "/" + strconv.Itoa(i)
			if r, err := f.try(sentBy(who, r)); err != nil || r.status != http.StatusOK {
				f.Errorf("%s: %d %v", who, r.status, err)
			}
		})
	}
	for range users {
		await(f.T, "a request", arrived)
	}
	f.eventually("the share of the tenant to be full", func() bool { return log.reading() == share })
	return func() {
		close(log.open)
		asking.Wait()
	}
}

// heldStore erases when its log opens.
type heldStore struct {
	registry.Store
	log *heldLog
}

func (s heldStore) EraseOf(ctx context.Context, tenant, _ string, _ registry.PersonalKind) (int, error) {
	_, _, err := s.log.ReadAudit(ctx, registry.AuditQuery{Tenant: tenant})
	return 0, err
}

// takeErasures fills the share of a tenant with erasures that do not end. The others wait.
func takeErasures(t *testing.T) testkit.Share {
	log, arrived := newHeldLog(), make(chan struct{}, 1000)
	log.of = hostileTenant
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth = arrivals{adminOf{}, arrived}
		c.Erasure = erasure.New(erasure.Config{Store: heldStore{memory.New(memory.Options{}), log}})
	}})
	erase := request{method: http.MethodDelete, path: "/api/users/anna"}
	other := f.other(erase, http.StatusOK)
	defer f.fill(3, arrived, log, 1, erase)()
	return other.Crowded()
}

func takeExports(t *testing.T) testkit.Share {
	log := newHeldLog()
	log.of = hostileTenant
	f := newFleet(t, setup{change: func(c *api.Config) { c.AuditLog, c.Auth = log, adminOf{} }})
	other := f.other(request{path: "/api/audit?format=jsonl"}, http.StatusOK)
	var exporting sync.WaitGroup
	statuses := make(chan int, 20)
	for i := range cap(statuses) {
		exporting.Go(func() {
			who := hostileTenant + "/" + strconv.Itoa(i)
			if r, err := f.try(sentBy(who, request{path: "/api/audit?format=jsonl"})); err == nil {
				statuses <- r.status
			}
		})
	}
	for range cap(statuses) - 8 {
		if status := await(t, "a refusal", statuses); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	f.eventually("the share of the tenant to be full", func() bool { return log.reading() == 2 })
	defer exporting.Wait()
	defer close(log.open)
	return other.Crowded()
}

// adminOf is byTenantAndUser for admins.
type adminOf struct{ byTenantAndUser }

func (a adminOf) Authenticate(ctx context.Context, r *http.Request, token string) (auth.Identity, error) {
	id, err := a.byTenantAndUser.Authenticate(ctx, r, token)
	id.Admin = true
	return id, err
}
