package farhand_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/client"
)

// seedRow is a tool, or one action of a tool, of the documents that Farhand implements, with arguments as they have
// them. The expected permissions are those of the default policy, each for main, group and group sandboxed: of a caller
// over HTTP, of an admin over HTTP, and of a model in a caller's conversation.
type seedRow struct {
	tool, args            string
	caller, admin, models string
}

const (
	may   = "may may may"
	never = "no no no"
	hosts = "asks no asks" // exec and bash: a person is asked, and in groups outside of a sandbox they are not there
)

// seedRows are called in this order, so that later ones find what earlier ones made.
var seedRows = []seedRow{
	{"write", `{"path":"notes/a.txt","content":"one\ntwo\n"}`, may, may, may},
	{"read", `{"path":"notes/a.txt","limit":1,"offset":1}`, may, may, may},
	{"edit", `{"path":"notes/a.txt","edits":[{"old":"two","new":"three"}]}`, may, may, may},
	{"exec", `{"command":"echo hello","timeout":5}`, hosts, "may no may", hosts},
	{"exec", `{"command":"ls","security":"allowlist"}`, hosts, "may no may", hosts},
	{"exec", `{"command":"ls","security":"deny"}`, never, never, never},
	{"exec", `{"command":"ls","elevated":true}`, never, never, never},
	{"bash", `{"command":"echo hello"}`, hosts, "may no may", hosts},
	{"get_weather", `{"location":"Vienna","units":"metric"}`, may, may, may},
	{"get_weather", `{"location":"Nowhere"}`, never, never, never},
}

// TestSeedsRunAsWritten runs every row over HTTP and in a conversation, in each context.
func TestSeedsRunAsWritten(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<title>Form</title><form><label>Name <input name="n"></label></form>`)
	}))
	t.Cleanup(page.Close)
	h := newHome(t, nodeTools(), func(c *farhand.Config) {
		c.Builtins = strings.Split("time,sessions,read,write,edit,exec,bash", ",")
		boxed(t, c)
	}, farhand.WithTool(weather(t)))
	for i, in := range []string{"main", "group", "group sandboxed"} {
		t.Run(in, func(t *testing.T) {
			h := *h
			h.T = t
			h.runSeeds(in, i, page.URL)
		})
	}
}

// runSeeds runs every row in one context, the i-th.
func (h *home) runSeeds(in string, i int, page string) {
	h.Helper()
	for _, row := range seedRows {
		args := strings.ReplaceAll(row.args, "PAGE", page)
		for role, all := range map[string]string{"caller": row.caller, "admin": row.admin} {
			want := strings.Fields(all)[i]
			got := h.call(h.keys[role+" "+in], row.tool, args, want == "asks")
			if got.permission() != want {
				h.Errorf("a %s, %s %s: %+v, want %s", role, row.tool, args, got, want)
			}
		}
		want := strings.Fields(row.models)[i]
		got := h.turn(h.keys["caller main"], in, row.tool, args)
		if len(got) != 1 || got[0].permission() != want {
			h.Errorf("a model, %s %s: %+v, want %s", row.tool, args, got, want)
		}
	}
}

// permission says in a word whether a call was allowed.
func (a answer) permission() string {
	switch registry.Code(a.Code) {
	case registry.CodeApprovalDenied:
		return "asks"
	case "":
		return "may"
	default:
		return "no"
	}
}

// permission says the same of a model's call.
func (r toolReport) permission() string {
	switch {
	case strings.Contains(r.Output, "needs a person's approval"):
		return "asks"
	case r.Status == "completed":
		return "may"
	default:
		return "no"
	}
}

// weather is the custom tool of the documents, with its own check of the arguments.
func weather(t *testing.T) checkedWeather {
	t.Helper()
	type in struct {
		Location string `json:"location"`
		Units    string `json:"units,omitempty"`
	}
	tool, err := farhand.NewTool("get_weather", "Get current weather information for a location",
		func(_ context.Context, a in) (any, error) {
			return map[string]any{"location": a.Location, "temperature": 21, "units": a.Units}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return checkedWeather{tool}
}

type checkedWeather struct{ agent.Tool }

// Validate implements agent.ArgsValidator.
func (checkedWeather) Validate(_ context.Context, args json.RawMessage) error {
	if strings.Contains(string(args), "Nowhere") {
		return errNoWeather
	}
	return nil
}

// nodeTools are what a phone offers.
func nodeTools() []deviceTool {
	return []deviceTool{{client.Tool{Name: "notify", Description: "Shows a notification."},
		func(context.Context, client.Call) (any, error) { return "shown", nil }}}
}

var errNoWeather = errors.New("there is no weather there")
