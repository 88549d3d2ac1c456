package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// answering has one of the scripts answer with n strings until the test ends.
func answering(t *testing.T, script **redisconn.Script, n int) {
	t.Helper()
	source := "return {" + strings.TrimSuffix(strings.Repeat("'{}',", n), ",") + "}"
	file := &fstest.MapFile{Data: []byte(source)}
	former := *script
	*script = redisconn.NewScripts(fstest.MapFS{"lua/short.lua": file}).Must(KindOther, "short")
	t.Cleanup(func() { *script = former })
}

// An answer that is shorter than what its script returns is no answer. It is neither read as an approval, a verdict or
// a grant without content, nor does it say that there is none.
func TestShortAnswersAreErrors(t *testing.T) {
	s, ctx := storeOn(t, Options{}), t.Context()
	a, err := s.CreateApproval(ctx, registry.Approval{ID: "aaaaaaaaaaaaaaaa", Tenant: "t"}, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := registry.Key{Tenant: "t", Session: "s"}
	session := registry.Session{Key: key, Pod: "p", Generation: 1}
	tests := []struct {
		name   string
		script **redisconn.Script
		is     int // how many elements the script returns
		read   func() (any, error)
	}{
		{"approval", &scriptDocsRead, 1 + 3*documentFields,
			func() (any, error) { return s.Approval(ctx, "t", a.ID) }},
		{"verdict", &scriptDocsRead, 1 + documentFields, func() (any, error) {
			return s.Verdicts(ctx, []registry.ApprovalRef{{Tenant: "t", ID: a.ID}})
		}},
		{"new grant", &scriptDocsWrite, 2, func() (any, error) {
			return s.PutGrant(ctx, registry.Grant{ID: "g", Tenant: "t"}, time.Minute)
		}},
		{"grant", &scriptDocsRead, 1 + documentFields,
			func() (any, error) { return s.FindGrant(ctx, "t", "b") }},
		{"call that begins", &scriptCallBegin, 2, func() (any, error) {
			r, _, err := s.BeginCall(ctx, "t", "c", "p", time.Minute)
			return r, err
		}},
		{"call that moves", &scriptCallMove, 2, func() (any, error) {
			return s.MoveCall(ctx, "t", "c", registry.EventDeliver, registry.Change{})
		}},
		{"restored session", &scriptRestore, 3, func() (any, error) {
			return s.Restore(ctx, registry.Entry{Session: session})
		}},
	}
	for _, test := range tests {
		for n := 1; n < test.is; n++ {
			t.Run(fmt.Sprintf("%s of %d", test.name, n), func(t *testing.T) {
				answering(t, test.script, n)
				if got, err := test.read(); !errors.Is(err, registry.CodeStoreUnavailable) {
					t.Errorf("read as %+v, %v", got, err)
				}
			})
		}
	}
	if found, err := s.Approval(ctx, "t", a.ID); err != nil || found.State != registry.ApprovalPending {
		t.Errorf("%+v, %v", found, err)
	}
}
