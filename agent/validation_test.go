package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// anyone asks where it does not matter who does.
var anyone share.Owner

// endlessly is a schema and arguments that keep a core busy for as long as a validation may.
func endlessly() (registry.ToolSpec, []byte) {
	return spec("t", `{"properties":{"n":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},"additionalProperties":false}`),
		[]byte(strings.Repeat(`{"n":`, 60) + `{"x":1}` + strings.Repeat(`}`, 60))
}

// The time of a call includes the validation of its arguments, and the tool does not run when that took all of it.
func TestTimeoutCoversValidation(t *testing.T) {
	d := newDesk(t)
	tool, args := endlessly()
	d.router.spec = tool
	_, err := d.Invoke(t.Context(), agent.Request{
		Caller: auth.Identity{Tenant: "default"}, Tool: "t", Args: registry.MustJSON(string(args)),
		Timeout: 20 * time.Millisecond,
	})
	if e := wantCode(t, err, registry.CodeTimeout); e.Dispatched != registry.DispatchedNo {
		t.Errorf("%+v", e)
	}
	if n := len(d.router.called()); n != 0 {
		t.Errorf("the tool ran %d times", n)
	}
}

// slowHook takes its time before a call.
type slowHook struct{ time.Duration }

func (slowHook) Name() string { return "slow" }

func (h slowHook) Before(context.Context, agent.Invocation) (agent.Decision, error) {
	<-time.After(h.Duration)
	return agent.Pass(), nil
}

// What comes before the tool takes of its time.
func TestToolGetsWhatIsLeft(t *testing.T) {
	d := newDesk(t, slowHook{50 * time.Millisecond})
	if _, err := d.Invoke(t.Context(), agent.Request{Caller: auth.Identity{Tenant: "default"}, Tool: "t",
		Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if c := d.router.called(); len(c) != 1 || c[0].Timeout > time.Minute-50*time.Millisecond ||
		c[0].Timeout < time.Second {
		t.Errorf("%+v", c)
	}
	_, err := d.Invoke(t.Context(), agent.Request{Caller: auth.Identity{Tenant: "default"}, Tool: "t",
		Timeout: 10 * time.Millisecond})
	if e := wantCode(t, err, registry.CodeTimeout); e.Dispatched != registry.DispatchedNo ||
		len(d.router.called()) != 1 {
		t.Errorf("%+v, %d calls", e, len(d.router.called()))
	}
}

// A caller that hangs up ends the validation of its arguments.
func TestHangUpEndsValidation(t *testing.T) {
	schemas := schema.NewValidator()
	tool, args := endlessly()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, schemas.Validate(ctx, anyone, tool, args, time.Time{}), registry.CodeCancelled)
}

// However many validate at a time, those of ordinary arguments do not wait for those that take long, and who has to
// wait does so no longer than its own time.
func TestOrdinaryArgumentsDoNotWait(t *testing.T) {
	schemas := schema.NewValidator()
	tool, args := endlessly()
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	for range 20 {
		attackers.Go(func() {
			for ctx.Err() == nil {
				_ = schemas.Validate(ctx, anyone, tool, args, time.Time{})
			}
		})
	}
	ordinary := spec("u", `{"properties":{"a":{"type":"string"}}}`)
	for range 1000 {
		if err := schemas.Validate(t.Context(), anyone, ordinary, []byte(`{"a":"b"}`),
			time.Now().Add(10*time.Second)); err != nil {
			t.Error(err)
			break
		}
	}
	larger := []byte(`{"a":"` + strings.Repeat("x", 5000) + `"}`)
	if err := schemas.Validate(t.Context(), anyone, ordinary, larger, time.Now().Add(10*time.Second)); err != nil {
		t.Errorf("larger arguments: %v", err)
	}
	err := schemas.Validate(t.Context(), anyone, tool, args, time.Now().Add(50*time.Millisecond))
	if !errors.Is(err, registry.CodeTimeout) {
		t.Errorf("it did not end with its time: %v", err)
	}
	if err := schemas.Validate(t.Context(), anyone, tool, args, time.Time{}); !errors.Is(err, registry.CodeBusy) &&
		!errors.Is(err, registry.CodeInvalidRequest) {
		t.Errorf("it waited for as long as it liked: %v", err)
	}
	cancel()
	attackers.Wait()
}

// What many sessions register is not kept compiled without bound, and one session gets only a part of what there is.
func TestCompiledSchemasOfASessionAreBounded(t *testing.T) {
	a := agent.NewAdmission(newPolicy(t, agent.PolicyRules{}), schema.NewValidator(), agent.AdmissionLimits{})
	var offered agent.SessionTools
	var refused error
	for i := range agent.DefaultMaxTools {
		properties := make([]string, 1500)
		for j := range properties {
			properties[j] = fmt.Sprintf(`"p%d":{"minimum":%d}`, j, i)
		}
		tool, err := a.Admit(t.Context(), spec(fmt.Sprintf("t%d", i),
			`{"properties":{`+strings.Join(properties, ",")+`}}`), agent.SessionTools{Compiled: offered.Compiled})
		if err != nil {
			refused = err
			break
		}
		offered.Compiled += a.CompiledSize(t.Context(), &auth.Identity{}, tool)
	}
	if refused == nil || !strings.Contains(refused.Error(), "compiled schemas") {
		t.Errorf("%d bytes were taken: %v", offered.Compiled, refused)
	}
	if offered.Compiled > 32<<20 || offered.Compiled < 16<<20 {
		t.Errorf("%d bytes were taken", offered.Compiled)
	}
}
