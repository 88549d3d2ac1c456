package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// full is a pod that sends as much as it may. It has no directory: whoever reads it panics.
type full struct {
	nothing
	body string
}

func (*full) ReservePage(context.Context) error {
	return &registry.Error{Code: registry.CodeBusy, Message: "This pod sends as much as it may."}
}

func (f *full) Write(status int, body []byte, _ *registry.Error) error {
	f.status, f.body = status, string(body)
	return nil
}

// Pages are paid for before they are made: a pod that sends as much as it may reads and builds none.
func TestPagesAreReservedFirst(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		scope          Scope
	}{
		{method: "tools/list", params: `{}`},
		{method: "resources/list", params: `{}`},
		{method: "resources/read", params: `{"uri":"farhand://sessions"}`},
		{method: "tools/call", params: `{"name":"search_tools","arguments":{}}`, scope: Scope{Search: true}},
	} {
		f := &full{}
		s := New(Config{Invoker: instant{}, Directory: nil, Gateway: nil, Cancels: f, Version: "1"})
		err := s.Serve(t.Context(), &Exchange{
			Caller: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}, Scope: tt.scope, Out: f,
			TakeBody: func() func() { return nil },
			Header: http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			},
			Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, tt.method, tt.params),
		})
		if err != nil || !json.Valid([]byte(f.body)) || !strings.Contains(f.body, `"code":"busy"`) {
			t.Errorf("%s: %v, %d %s", tt.method, err, f.status, f.body)
		}
	}
}
