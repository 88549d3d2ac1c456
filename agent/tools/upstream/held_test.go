package upstream_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// TestMemoryThatACallHolds: a hostile server answers a call with notifications, or with answers to what was not asked,
// and does not end it. That takes none of the memory that the long answers of other servers need.
func TestMemoryThatACallHolds(t *testing.T) {
	values := "[" + strings.Repeat("0,", 900) + "0]"
	for name, x := range map[string]struct {
		times int
		said  string
	}{
		"notifications": {325, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x",` +
			`"progress":1,"message":"` + strings.Repeat("m", 50<<10) + `","_meta":{"a":` + values + `}}}`},
		"answers": {6, `{"jsonrpc":"2.0","id":987654,"result":{"content":[{"type":"text","text":"` +
			strings.Repeat("m", 7<<20) + `"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan struct{})
			servers, _ := withGood(t, evil{call: func(w http.ResponseWriter, r *http.Request, m message) {
				send := events(w)
				for range x.times {
					if send(x.said) != nil {
						return
					}
				}
				close(sent)
				<-r.Context().Done()
			}})
			tools := until(t, servers, func(tools map[string]agent.Tool) bool {
				return has("evil__do")(tools) && has("good__echo")(tools)
			})
			begin(t, tools["evil__do"], `{}`)
			select {
			case <-sent:
			case <-time.After(30 * time.Second):
				t.Fatal("the server could not send")
			}
			long := fmt.Sprintf(`{"text":%q}`, strings.Repeat("long ", 500_000))
			began := time.Now()
			res, err := call(t, tools["good__echo"], long)
			if err != nil || len(res.Output) < 2_000_000 {
				t.Errorf("another server, after %v: %v", time.Since(began), registry.AsError(err))
			}
		})
	}
}
