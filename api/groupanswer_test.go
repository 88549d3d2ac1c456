package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// A group call that is refused before its first row has its own status, unless its answer has begun with a heartbeat:
// then the answer ends with the problem.
func TestGroupAnswerOfARefusal(t *testing.T) {
	refused := registry.Errorf(registry.CodeApprovalDenied, "No.").With(registry.DispatchedNo)
	for _, media := range []string{"text/event-stream", mediaNDJSON, mediaJSON} {
		for _, grace := range []time.Duration{time.Nanosecond, time.Hour} {
			said, beat := httptest.NewRecorder(), make(chan struct{})
			c, _ := gin.CreateTestContext(&noted{ResponseRecorder: said, wrote: beat})
			c.Request = httptest.NewRequest(http.MethodPost, "/api/calls", nil)
			c.Request.Header.Set("Accept", media)
			c.Header(headerCallID, "call-1")
			begins := grace < time.Second
			a := newGroupAnswer(c)
			failure, gone := a.serve(c, grace, registry.GroupRace, func(context.Context) (agent.Outcome, error) {
				if begins {
					<-beat
				}
				return agent.Outcome{}, refused
			})
			text := said.Body.String()
			switch {
			case gone != nil:
				t.Errorf("%s: %v", media, gone)
			case !begins && (failure != error(refused) || text != ""):
				t.Errorf("%s without a heartbeat: %v %q", media, failure, text)
			case begins && (failure != nil || !strings.Contains(text, `"call_id":"call-1"`) ||
				!strings.Contains(text, `"mode":"race"`) || !strings.Contains(text, `"state":"rejected"`) ||
				!strings.Contains(text, `"problem":{"code":"approval_denied","detail":"No."`)):
				t.Errorf("%s after a heartbeat: %v %q", media, failure, text)
			case begins && media == mediaJSON && !json.Valid([]byte(text)):
				t.Errorf("not JSON: %q", text)
			case begins && media != mediaJSON && !strings.Contains(text, "done"):
				t.Errorf("%s has no end: %q", media, text)
			}
		}
	}
}

// noted closes wrote at the first byte.
type noted struct {
	*httptest.ResponseRecorder
	wrote chan struct{}
	begun bool
}

func (n *noted) Write(b []byte) (int, error) {
	if !n.begun {
		n.begun = true
		close(n.wrote)
	}
	return n.ResponseRecorder.Write(b)
}
