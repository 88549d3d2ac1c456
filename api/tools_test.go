package api_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// toolRow is a row of the tool list as a client reads it.
type toolRow struct {
	Reason        string
	Name          string
	Description   string
	Parameters    map[string]any
	SourceType    string `json:"source_type"`
	Source        string
	Enabled       bool
	SessionID     string `json:"session_id"`
	DeviceID      string `json:"device_id"`
	DeviceName    string `json:"device_name"`
	UserID        string `json:"user_id"`
	Labels        map[string]string
	Pod           string
	TimeoutMS     int64  `json:"timeout_ms"`
	SecurityLevel string `json:"security_level"`
	SchemaHash    string `json:"schema_hash"`
	Sessions      int
}

type toolList struct {
	Tools      []toolRow
	NextCursor string `json:"next_cursor"`
}

// at renders rows as "session/tool".
func at(rows []toolRow) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.SessionID+"/"+r.Name)
	}
	return out
}

// threeDevices connects three devices on two pods: two phones of anna with the same tools, one tablet of ben.
func threeDevices(t *testing.T) *fleet {
	f := newFleet(t, setup{pods: 2, policy: agent.PolicyRules{CallDeny: []string{"door.*"}}})
	for i, s := range []registry.Session{
		{DeviceID: "phone-1", DeviceName: "Anna's phone", UserID: "anna",
			Labels: map[string]string{"room": "hall", "os": "android"}},
		{DeviceID: "phone-2", UserID: "anna", Labels: map[string]string{"room": "attic", "os": "android"}},
		{DeviceID: "tablet", UserID: "ben", Labels: map[string]string{"room": "hall"}},
	} {
		s.Key.Session = "s" + strconv.Itoa(i+1)
		specs := []registry.ToolSpec{tool("camera.snap", "Takes a Picture"), tool("locate", "where it is")}
		if i == 2 {
			specs = []registry.ToolSpec{tool("camera.snap", "takes a picture, slowly"),
				tool("door.open", "opens the door")}
			specs[1].TimeoutMS, specs[1].SecurityLevel = 5000, registry.SecurityUserConfirm
		}
		f.connect(i%2, s, echo, specs...)
	}
	return f
}

func TestToolRow(t *testing.T) {
	f := threeDevices(t)
	row := decode[toolList](f.get("/api/tools?session_id=s1&name=locate"), 200).Tools[0]
	if row.Source != "s1" || row.SessionID != "s1" || row.SourceType != "remote" || !row.Enabled ||
		row.Pod != "pod-0" ||
		row.DeviceID != "phone-1" || row.DeviceName != "Anna's phone" || row.UserID != "anna" ||
		row.Labels["room"] != "hall" ||
		row.Description != "where it is" || row.Parameters["type"] != "object" || len(row.SchemaHash) != 64 {
		t.Errorf("row %+v", row)
	}
	row = decode[toolList](f.get("/api/tools?name=door.open"), 200).Tools[0]
	if row.Enabled || row.TimeoutMS != 5000 || row.SecurityLevel != "user_confirm" {
		t.Errorf("row %+v", row)
	}
}

func TestToolFilters(t *testing.T) {
	f := threeDevices(t)
	const all = "s1/camera.snap s1/locate s2/camera.snap s2/locate s3/camera.snap s3/door.open"
	for query, want := range map[string]string{
		"":                                     all,
		"name=locate":                          "s1/locate s2/locate",
		"name=absent":                          "",
		"q=PICTURE":                            "s1/camera.snap s2/camera.snap s3/camera.snap",
		"q=slowly":                             "s3/camera.snap",
		"q=OOR":                                "s3/door.open",
		"q=":                                   all,
		"session_id=s2":                        "s2/camera.snap s2/locate",
		"session_id=nobody":                    "",
		"device_id=tablet":                     "s3/camera.snap s3/door.open",
		"user_id=anna&name=locate":             "s1/locate s2/locate",
		"label=room%3Dhall":                    "s1/camera.snap s1/locate s3/camera.snap s3/door.open",
		"label=room=hall&label=os=android":     "s1/camera.snap s1/locate",
		"label=room=cellar":                    "",
		"label=room=":                          "",
		"source_type=remote&q=where":           "s1/locate s2/locate",
		"source_type=builtin":                  "",
		"source_type=mcp":                      "",
		"user_id=anna&label=room=attic&q=snap": "s2/camera.snap",
	} {
		for pod := range f.pods {
			r := f.send(request{path: "/api/tools?" + query, pod: pod})
			if got := strings.Join(at(decode[toolList](r, 200).Tools), " "); got != want {
				t.Errorf("pod %d, %s: got %s, want %s", pod, query, got, want)
			}
			if !strings.Contains(string(r.body), `"tools":[`) {
				t.Errorf("%s: tools is not an array: %s", query, r.body)
			}
		}
	}
}

func TestBadQueries(t *testing.T) {
	f := threeDevices(t)
	for path, mention := range map[string]string{
		"/api/tools?nam=x":                               `"nam"`,
		"/api/tools?Name=x":                              `"Name"`,
		"/api/tools?token=" + token:                      `"token"`,
		"/api/tools?limit=0":                             `"limit"`,
		"/api/tools?limit=1001":                          `"limit"`,
		"/api/tools?limit=ten":                           `"limit"`,
		"/api/tools?limit=":                              `"limit"`,
		"/api/tools?limit=1&limit=2":                     `"limit"`,
		"/api/tools?device_id=":                          `"device_id"`,
		"/api/tools?session_id=%7B%7D":                   "session_id",
		"/api/tools?name=a%20b":                          `"name"`,
		"/api/tools?label=room":                          `"label"`,
		"/api/tools?label==x":                            `"label"`,
		"/api/tools?label=a=1&label=a=2":                 `"a"`,
		"/api/tools?source_type=local":                   `"source_type"`,
		"/api/tools?view=flat":                           `"view"`,
		"/api/tools?format=gemini":                       `"format"`,
		"/api/tools?view=grouped&format=mcp":             "combined",
		"/api/tools?q=%ff":                               "UTF-8",
		"/api/tools?q=%zz":                               "malformed",
		"/api/tools?a=1;b=2":                             "malformed",
		"/api/tools?cursor=xyz":                          "cursor",
		"/api/tools?cursor=":                             `"cursor"`,
		"/api/tools?cursor=e30":                          "cursor",
		"/api/tools?cursor=" + strings.Repeat("A", 2000): "cursor",
		"/api/sessions?session_id=s1":                    `"session_id"`,
		"/api/sessions?q=x":                              `"q"`,
		"/api/sessions?limit=-1":                         `"limit"`,
		"/api/sessions?cursor=AAAA":                      "cursor",
		"/api/sessions/s1?verbose=1":                     `"verbose"`,
	} {
		p := wantProblem(f.get(path), 400, registry.CodeInvalidRequest)
		if !strings.Contains(p.Detail, mention) {
			t.Errorf("%s: the detail does not mention %s: %s", path, mention, p.Detail)
		}
	}
	p := wantProblem(f.post("/api/tools/locate/call?timeout_ms=5", ""), 400, registry.CodeInvalidRequest)
	if !strings.Contains(p.Detail, `"timeout_ms"`) {
		t.Errorf("detail %s", p.Detail)
	}
}

func TestToolsVanishWithTheirDevice(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(1, session("s1"), echo, tools("t")...)
	if rows := f.pages("/api/tools?limit=5", nil); len(rows) != 1 {
		t.Fatalf("rows %v", rows)
	}
	d.gone()
	for _, path := range []string{"/api/tools?limit=5", "/api/tools?view=grouped", "/api/tools?format=mcp",
		"/api/tools?name=t"} {
		if rows := f.pages(path, nil); len(rows) != 0 {
			t.Errorf("%s still lists %v", path, rows)
		}
	}
}
