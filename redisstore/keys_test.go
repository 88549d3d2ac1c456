package redisstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// TestKeys pins every key and channel: pods of two releases share them during a deploy.
func TestKeys(t *testing.T) {
	k := registry.Key{Tenant: "acme", Session: "phone.1"}
	for _, c := range []struct{ got, want string }{
		{sessionKey(k), "fh:{acme/phone.1}"},
		{goneKey(k), "fh:{acme/phone.1}:gone"},
		{formersKey(k), "fh:{acme/phone.1}:formers"},
		{strings.Join(chatKeys(k), " "),
			"fh:{acme/phone.1}:chat fh:{acme/phone.1}:chatmeta fh:{acme/phone.1}:draft fh:{acme/phone.1}:trail"},
		{placeKey(registry.PlaceKey{Tenant: "acme", Session: "phone.1"}), "fh:{acme/phone.1}:place"},
		{placeKey(registry.PlaceKey{Tenant: "acme", Identity: "user:a b"}), "fh:acme:place:user%3Aa%20b"},
		{strings.Join(chatsKeys("acme"), " "), "fh:{acme:chats} fh:{acme:chats}:version fh:{acme:chats}:running"},
		{specKey("acme", "abc123"), "fh:acme:spec:abc123"},
		{sessionsIndex("acme"), "fh:acme:sessions"},
		{deviceIndex("acme", "d:{1}*"), "fh:acme:device:d%3A%7B1%7D%2A"},
		{userIndex("acme", "ünal"), "fh:acme:user:%C3%BCnal"},
		{labelIndex("acme", "app/site", "a=b c"), "fh:{acme:labels}:app%2Fsite=a%3Db%20c"},
		{setKey("acme", "abc_-3"), "fh:acme:set:abc_-3"},
		{membersIndex("acme", "abc_-3"), "fh:acme:members:abc_-3"},
		{offersIndex("acme"), "fh:acme:offers"},
		{versionKey("acme"), "fh:acme:version"},
		{offerMember("camera", "abc123", "set1"), "camera\x00abc123\x00set1"},
		{callKey("acme", "c-1"), "fh:acme:{call:c-1}"},
		{callKey("acme", "{}:events"), "fh:acme:{call:%7B%7D%3Aevents}"},
		{callEventsKey("acme", "c-1"), "fh:acme:{call:c-1}:events"},
		{idemKey("acme", "a"), "fh:acme:idem:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
		{budgetKey("acme", "calls/s-1"), "fh:acme:budget:calls%2Fs-1"},
		{strings.Join(feedKeys("acme"), " "),
			"fh:acme:activity fh:{fh:acme:activity}:bytes " +
				"fh:{fh:acme:activity}:calls fh:{fh:acme:activity}:calls:before"},
		{strings.Join(continuationKeys(registry.ContinuationOwner{Tenant: "acme", User: "a}b"}), " "),
			"fh:acme:{kept:acme/a%7Db} fh:acme:{kept:acme/a%7Db}:expiry"},
		{documentKey(documents.Space{Tenant: "a}b", Kind: "approvals"}, "x:y"), "fh:{a%7Db:approvals}:doc:x%3Ay"},
		{documentKey(documents.Space{Tenant: "a", Kind: "nonces", Owner: "k/1"}, "x"), "fh:{a:nonces/k%2F1}:doc:x"},
		{indexKey(documents.Space{Kind: "pairings"}, "all"), "fh:{:pairings}:index:all"},
		{changesKey, "fh:changes"},
		{revokedKey("a}b", registry.ChangeJWT), "fh:{a%7Db:revoked}:jwt"},
		{lastChangeKey, "fh:{fh:changes}:last"},
		{windowKey("a}b", registry.Window{Name: "a", Period: time.Minute}),
			"fh:{a%7Db:limits}:ca978112ca1bbdcafac231b39a23dc4d:60000"},
		{usageKey("a}b", "2026-11-22"), "fh:a%7Db:usage:2026-11-22"},
		{strings.Join(auditKeys("a}b"), " "), "fh:{a%7Db:audit} fh:{a%7Db:audit}:size"},
		{podSessionsKey("host-1"), "fh:{pod:host-1}:sessions"},
		{podMember(k), "acme/phone.1"},
		{podMember(registry.Key{Tenant: "default", Session: "phone.1"}), "phone.1"},
		{podsKey, "fh:pods"},
		{pingKey, "fh:ping"},
		{emptiedKey, "fh:{fh:pods}:emptied"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestKeysOfHostileNames(t *testing.T) {
	hostile := registry.Key{Tenant: "a}:{b", Session: "s/../x\n"}
	if got, want := sessionKey(hostile), "fh:{a%7D%3A%7Bb/s%2F..%2Fx%0A}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := setKey("t", "x:y"), "fh:t:set:x%3Ay"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPodMemberRoundTrip(t *testing.T) {
	for _, tenant := range []string{"acme", registry.DefaultTenant} {
		k := registry.Key{Tenant: tenant, Session: "s.1_2-3"}
		if got := parsePodMember(podMember(k)); got != k {
			t.Errorf("got %+v, want %+v", got, k)
		}
	}
}

func TestAttributeIndexes(t *testing.T) {
	got := attributeIndexes(registry.Session{
		Key: registry.Key{Tenant: "t", Session: "s"}, DeviceID: "d", UserID: "u", Labels: map[string]string{"k": "v"},
	})
	want := []string{"fh:t:sessions", "fh:t:device:d", "fh:t:user:u", "fh:{t:labels}:k=v"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
