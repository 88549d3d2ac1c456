package farhand_test

import (
	"net/http"
	"testing"
)

// Whoever is revoked leaves no device behind that was approved and has not collected its credential.
func TestRevocationReachesApprovedRequests(t *testing.T) {
	t.Parallel()
	p := newPairingPods(t, 1, nil)
	url := p.urls[0]
	for _, revoke := range []string{"user_id", "device_id", "credential"} {
		var approver struct{ ID, Key string }
		if status := p.ask(http.MethodPost, url+"/api/keys", pairToken, nil,
			map[string]any{"roles": []string{"approver"}, "user_id": "mallory"},
			&approver); status != http.StatusCreated {
			t.Fatalf("key: status %d", status)
		}
		var request, canary asked
		p.ask(http.MethodPost, url+"/pair", "", nil, map[string]any{"device_id": "left-behind"}, &request)
		p.ask(http.MethodPost, url+"/pair", "", nil, map[string]any{"device_id": "not-" + revoke}, &canary)
		decide := func(code, token string) int {
			return p.ask(http.MethodPost, url+"/api/pairings", token, nil,
				map[string]any{"code": code, "decision": "approve"}, nil)
		}
		p.eventually("the key to be known", func() bool { return decide(request.Code, approver.Key) == http.StatusOK })
		if status := decide(canary.Code, pairToken); status != http.StatusOK {
			t.Fatalf("the admin's approval: status %d", status)
		}
		what := map[string]any{revoke: map[string]string{
			"user_id": "mallory", "device_id": "left-behind", "credential": approver.ID,
		}[revoke]}
		if status := p.ask(http.MethodPost, url+"/api/revocations", pairToken, nil,
			what, nil); status != http.StatusOK {
			t.Fatalf("revoke: status %d", status)
		}
		p.changesRead()
		var c collected
		if status := p.ask(http.MethodPost, url+"/pair/status", "", nil,
			map[string]any{"secret": request.Secret}, &c); status != http.StatusNotFound || c.Credential != "" {
			t.Errorf("%s revoked: status %d, a credential: %t", revoke, status, c.Credential != "")
		}
		p.ask(http.MethodPost, url+"/pair/status", "", nil, map[string]any{"secret": canary.Secret}, &c)
		if c.Status != "approved" || c.Credential == "" {
			t.Errorf("%s revoked: another's device is told %q", revoke, c.Status)
		}
	}
}

// changesRead waits until the first pod has read the changes that were made until now: a key that is revoked last of
// all is no good any more.
func (p *pairingPods) changesRead() {
	p.Helper()
	var last struct{ ID, Key string }
	p.ask(http.MethodPost, p.urls[0]+"/api/keys", pairToken, nil, map[string]any{}, &last)
	use := func() int {
		return p.ask(http.MethodGet, p.urls[0]+"/api/sessions", last.Key, nil, nil, nil)
	}
	p.eventually("a new key to be good", func() bool { return use() == http.StatusOK })
	p.ask(http.MethodDelete, p.urls[0]+"/api/keys/"+last.ID, pairToken, nil, nil, nil)
	p.eventually("a revoked key to be no good", func() bool { return use() == http.StatusUnauthorized })
}

// One tenant's approvers do not fill the log of changes, in which the revocations of all tenants are.
func TestChangesOfDevicesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPairingPods(t, 1, nil)
	p.paired("cam-1", nil)
	const burst, most = 100, 200
	statuses := make(map[int]int)
	for i := 0; i < most && statuses[http.StatusTooManyRequests] == 0; i++ {
		method, path, body := http.MethodPut, "", map[string]any{"name": "n"}
		if i%2 == 0 {
			method, path, body = http.MethodPost, "/tools", map[string]any{"reject": []string{"x"}}
		}
		statuses[p.ask(method, p.urls[0]+"/api/devices/cam-1"+path, pairToken, nil, body, nil)]++
	}
	if statuses[http.StatusOK] < burst || statuses[http.StatusTooManyRequests] != 1 {
		t.Errorf("statuses %v", statuses)
	}
	status := p.ask(http.MethodDelete, p.urls[0]+"/api/devices/cam-1", pairToken, nil, nil, nil)
	if status != http.StatusNoContent {
		t.Errorf("ending the device: status %d", status)
	}
}

// What a credential is restricted to, what it makes is restricted to.
func TestRestrictedCredentialsMakeNoStrongerOnes(t *testing.T) {
	t.Parallel()
	p := newPairingPods(t, 1, nil)
	key := func(token string, body map[string]any) (status int, secret string) {
		var made struct{ Key string }
		status = p.ask(http.MethodPost, p.urls[0]+"/api/keys", token, nil, body, &made)
		return status, made.Key
	}
	_, sandboxed := key(pairToken, map[string]any{"roles": []string{"admin"}, "context": "group sandboxed"})
	_, bound := key(pairToken, map[string]any{"roles": []string{"approver"}, "user_id": "ann", "device_id": "phone"})
	p.changesRead() // by then both keys are known
	if status, _ := key(sandboxed, map[string]any{"roles": []string{"admin"}}); status != http.StatusForbidden {
		t.Errorf("a key without the sandbox: status %d", status)
	}
	same := map[string]any{"roles": []string{"admin"}, "context": "group sandboxed"}
	if status, _ := key(sandboxed, same); status != http.StatusCreated {
		t.Errorf("a key for the sandbox: status %d", status)
	}
	for device, want := range map[string]int{"laptop": http.StatusForbidden, "phone": http.StatusOK} {
		var a asked
		p.ask(http.MethodPost, p.urls[0]+"/pair", "", nil, map[string]any{"device_id": device}, &a)
		status := p.ask(http.MethodPost, p.urls[0]+"/api/pairings", bound, nil,
			map[string]any{"code": a.Code, "decision": "approve"}, nil)
		if status != want {
			t.Errorf("the phone's approver approves %s: status %d", device, status)
		}
	}
}
