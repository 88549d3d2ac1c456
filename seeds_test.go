package farhand_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools"
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
	asks  = "asks asks asks"
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
	{"nodes", `{"action":"status"}`, may, may, may},
	{"nodes", `{"action":"describe","deviceId":"phone"}`, may, may, may},
	{"nodes", `{"action":"pending"}`, never, may, never},
	{"nodes", `{"action":"approve","deviceId":"tablet"}`, never, never, never}, // none waits
	{"nodes", `{"action":"reject","deviceId":"tablet"}`, never, never, never},
	{"nodes", `{"action":"notify","deviceId":"phone","title":"Hi","body":"there"}`, may, may, may},
	{"nodes", `{"action":"notify","deviceId":"phone"}`, never, never, never}, // no body
	{"nodes", `{"action":"camera_list","deviceId":"phone"}`, may, may, may},
	{"nodes", `{"action":"camera_snap","deviceId":"phone","facing":"front"}`, asks, may, asks},
	{"nodes", `{"action":"camera_clip","deviceId":"phone","facing":"back","duration":"3s"}`, asks, may, asks},
	{"nodes", `{"action":"screen_record","deviceId":"phone","duration":"3s"}`, asks, may, asks},
	{"nodes", `{"action":"location_get","deviceId":"phone"}`, asks, may, asks},
	{"nodes", `{"action":"run","deviceId":"phone","command":"date"}`, asks, may, asks},
	{"node-invoke", `{"device":"phone","command":"notify","params":{"body":"there"}}`, may, may, may},
	{"node-invoke", `{"device":"phone","command":"camera_snap"}`, asks, may, asks},
	{"node-invoke", `{"device":"phone","command":"fly"}`, never, never, never},
	{"canvas", `{"action":"present","node":"phone","url":"https://example.com/a"}`, may, may, may},
	{"canvas", `{"action":"navigate","node":"phone","url":"https://example.com/b"}`, may, may, may},
	{"canvas", `{"action":"navigate","node":"phone","url":"http://169.254.169.254/"}`, never, never, never},
	{"canvas", `{"action":"eval","node":"phone","javaScript":"1+1"}`, asks, may, asks},
	{"canvas", `{"action":"snapshot","node":"phone","quality":80}`, may, may, may},
	{"canvas", `{"action":"a2ui_push","node":"phone","jsonl":"{\"type\":\"push\"}"}`, may, may, may},
	{"canvas", `{"action":"a2ui_reset","node":"phone"}`, may, may, may},
	{"canvas", `{"action":"hide","node":"phone"}`, may, may, may},
	{"browser", `{"action":"status"}`, may, may, may},
	{"browser", `{"action":"start"}`, may, may, may},
	{"browser", `{"action":"open","url":"PAGE"}`, may, may, may},
	{"browser", `{"action":"open","url":"file:///etc/passwd"}`, never, never, never},
	{"browser", `{"action":"navigate","url":"PAGE"}`, may, may, may},
	{"browser", `{"action":"snapshot"}`, may, may, may},
	{"browser", `{"action":"screenshot"}`, may, may, may},
	{"browser", `{"action":"act","request":{"kind":"fill","ref":"e1","text":"Ann"}}`, may, may, may},
	{"browser", `{"action":"act","request":{"kind":"type","ref":"e1","text":"a"}}`, may, may, may},
	{"browser", `{"action":"act","request":{"kind":"hover","ref":"e2"}}`, may, may, may},
	{"browser", `{"action":"act","request":{"kind":"drag","ref":"e2","targetRef":"e1"}}`, may, may, may},
	{"browser", `{"action":"act","request":{"kind":"click","ref":"e2"}}`, may, may, may},
	{"browser", `{"action":"stop"}`, may, may, may},
}

// TestSeedsRunAsWritten runs every row over HTTP and in a conversation, in each context.
func TestSeedsRunAsWritten(t *testing.T) {
	page, port := formPage(t)
	var box farhand.ToolsConfig
	boxed(t, &box)
	for i, in := range []string{"main", "group", "group sandboxed"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			h := newHome(t, nodeTools(), func(c *farhand.Config) {
				c.Builtins = tools.Names()
				c.Sandbox, c.DockerHost, c.SandboxImage = box.Sandbox, box.DockerHost, box.SandboxImage
				c.PrivateURLs, c.BrowserPorts, c.BrowserBare = true, []int{port}, os.Getuid() == 0
			}, farhand.WithTool(weather(t)))
			h.runSeeds(in, i, page)
			some := func(n float64) bool { return n >= 1 }
			wantMetric(t, h.url, `farhand_browser_starts_total{result="ok"}`, some)
			if box.Sandbox == farhand.SandboxDocker && strings.Contains(in, "sandboxed") {
				wantMetric(t, h.url, "farhand_containers", some)
			}
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
	switch code := registry.Code(a.Code); {
	case code == registry.CodeApprovalDenied, strings.Contains(a.Detail, "waited for approval"):
		return "asks"
	case code == "" && (a.Success || strings.Contains(a.Output, "There is no bash")): // the small image has none
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

// formPage serves a form that says who sent it, and returns its URL and port.
func formPage(t *testing.T) (address string, port int) {
	t.Helper()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<title>Form</title><form><label>Name <input name="n"></label><button>Send</button></form>`+
			`<p>Hello %s!</p>`, html.EscapeString(r.FormValue("n")))
	}))
	t.Cleanup(page.Close)
	u, err := url.Parse(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return page.URL, port
}

type checkedWeather struct{ agent.Tool }

// Validate implements agent.ArgsValidator.
func (checkedWeather) Validate(_ context.Context, args json.RawMessage) error {
	if strings.Contains(string(args), "Nowhere") {
		return errNoWeather
	}
	return nil
}

// nodeTools are what a phone offers, by their conventional names.
func nodeTools() (all []deviceTool) {
	done := func(context.Context, client.Call) (any, error) { return "done", nil }
	for name, level := range map[string]string{
		"notify": "", "camera_list": "", "camera_snap": "user_confirm", "camera_clip": "user_confirm",
		"screen_record": "user_confirm", "location_get": "user_confirm", "run": "user_confirm", "canvas_present": "",
		"canvas_hide": "", "canvas_navigate": "", "canvas_eval": "user_confirm", "canvas_snapshot": "",
		"canvas_a2ui_push": "", "canvas_a2ui_reset": "",
	} {
		all = append(all, deviceTool{client.Tool{Name: name, Description: name, SecurityLevel: level}, done})
	}
	return all
}

var errNoWeather = errors.New("there is no weather there")

// TestModelBuildsAndShows: in a sandbox a model builds a program from files, runs it, mends it, and shows a device what
// it printed.
func TestModelBuildsAndShows(t *testing.T) {
	shown := make(chan string, 1)
	tools := []deviceTool{{client.Tool{Name: "canvas_a2ui_push", Description: "Shows."},
		func(_ context.Context, c client.Call) (any, error) {
			shown <- string(c.Args)
			return "shown", nil
		}}}
	h := newHome(t, tools, func(c *farhand.Config) {
		c.Builtins = strings.Split("read,write,edit,exec,canvas", ",")
		boxed(t, &c.ToolsConfig)
	})
	got := h.turn(h.keys["admin group sandboxed"], "group sandboxed",
		"write", `{"path":"src/sum.sh","content":"#!/bin/sh\necho $(( $1 - $2 ))\n"}`,
		"exec", `{"command":"sh src/sum.sh 20 22"}`,
		"edit", `{"path":"src/sum.sh","edits":[{"old":"$1 - $2","new":"$1 + $2"}]}`,
		"exec", `{"command":"sh src/sum.sh 20 22 | tee out.txt; id -u; ls /"}`,
		"read", `{"path":"out.txt"}`,
		"canvas", `{"action":"a2ui_push","node":"phone","jsonl":"{\"text\":\"42\"}"}`)
	want := []string{"", "-2", "+echo $(( $1 + $2 ))", "42\n65534\n", "42", "shown"}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, r := range got {
		if r.Status != "completed" || !strings.Contains(r.Output, want[i]) {
			t.Errorf("%s: %s %s, want %q", r.Name, r.Status, r.Output, want[i])
		}
	}
	if args := <-shown; !strings.Contains(args, `{\"text\":\"42\"}`) {
		t.Errorf("the device showed %s", args)
	}
}

// TestDeletedSessionEndsItsBrowser: what runs for a conversation ends when its session is deleted.
func TestDeletedSessionEndsItsBrowser(t *testing.T) {
	h := newHome(t, nil, func(c *farhand.Config) {
		c.Builtins, c.BrowserBare = []string{"browser"}, os.Getuid() == 0
	})
	h.turn(h.keys["caller main"], "main", "browser", `{"action":"start"}`)
	running := func() string {
		return h.turn(h.keys["caller main"], "main", "browser", `{"action":"status"}`)[0].Output
	}
	if before := running(); strings.Contains(before, "No browser") {
		t.Fatalf("before: %s", before)
	}
	if status := remove(t, h.url+"/api/sessions/phone", adminToken); status != http.StatusNoContent {
		t.Fatalf("delete: %d", status)
	}
	h.device(nil)
	if after := running(); !strings.Contains(after, "No browser") {
		t.Errorf("after: %s", after)
	}
}

// TestModelFillsAForm: a model opens a page, fills its form in, sends it, and reads the answer.
func TestModelFillsAForm(t *testing.T) {
	page, port := formPage(t)
	h := newHome(t, nil, func(c *farhand.Config) {
		c.Builtins = []string{"browser"}
		c.PrivateURLs, c.BrowserPorts, c.BrowserBare = true, []int{port}, os.Getuid() == 0
	})
	got := h.turn(h.keys["caller main"], "main",
		"browser", `{"action":"open","url":"`+page+`"}`,
		"browser", `{"action":"snapshot"}`,
		"browser", `{"action":"act","request":{"kind":"fill","ref":"e1","text":"Ann"}}`,
		"browser", `{"action":"act","request":{"kind":"click","ref":"e2"}}`,
		"browser", `{"action":"snapshot"}`,
		"browser", `{"action":"screenshot"}`)
	want := []string{"Form", "Name", "", "", "Hello Ann!", ""}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, r := range got {
		if r.Status != "completed" || !strings.Contains(r.Output, want[i]) {
			t.Errorf("%d: %s %s, want %q", i, r.Status, r.Output, want[i])
		}
	}
	picture := h.model.results()[5]
	if len(picture.Pictures) != 1 || strings.Contains(picture.Content, "iVBOR") {
		t.Errorf("the model was shown %d pictures, and read %.100q", len(picture.Pictures), picture.Content)
	}
}
