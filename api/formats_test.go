package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// counted renders grouped rows as "name description sessions".
func counted(rows []toolRow) []string {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s %s %d", r.Name, r.Description, r.Sessions))
	}
	return out
}

func TestGrouped(t *testing.T) {
	f := threeDevices(t)
	for query, want := range map[string][]string{
		"": {"camera.snap Takes a Picture 2", "camera.snap takes a picture, slowly 1",
			"door.open opens the door 1", "locate where it is 2"},
		"&name=locate":  {"locate where it is 2"},
		"&q=door":       {"door.open opens the door 1"},
		"&q=nothing":    nil,
		"&user_id=anna": {"camera.snap Takes a Picture 2", "locate where it is 2"},
		"&label=room=hall": {"camera.snap Takes a Picture 1", "camera.snap takes a picture, slowly 1",
			"door.open opens the door 1", "locate where it is 1"},
		"&device_id=tablet&q=picture": {"camera.snap takes a picture, slowly 1"},
		"&session_id=s1&name=locate":  {"locate where it is 1"},
		"&source_type=mcp":            nil,
	} {
		for limit := 1; limit < 6; limit++ {
			rows := f.pages(fmt.Sprintf("/api/tools?view=grouped&limit=%d%s", limit, query), nil)
			got := counted(rows)
			slices.Sort(got) // definitions of one name are in the order of their hashes
			equal(t, fmt.Sprintf("%s limit %d", query, limit), got, slices.Sorted(slices.Values(want)))
			if !slices.IsSortedFunc(rows, func(a, b toolRow) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("%s limit %d: not in order of name: %v", query, limit, got)
			}
		}
	}
	for _, row := range f.pages("/api/tools?view=grouped", nil) {
		if row.SourceType != "remote" || row.SchemaHash == "" || row.Enabled == (row.Name == "door.open") {
			t.Errorf("row %+v", row)
		}
	}
}

// TestFormsHaveTheirPaths: each form of the list has a path, which answers byte for byte as the parameter does, page by
// page, and takes neither parameter.
func TestFormsHaveTheirPaths(t *testing.T) {
	f := threeDevices(t)
	f.connect(0, session("z1"), echo, tools("camera_snap")...)
	for path, query := range map[string]string{
		"/api/tools/grouped": "view=grouped", "/api/tools/openai": "format=openai",
		"/api/tools/anthropic": "format=anthropic", "/api/tools/mcp": "format=mcp",
	} {
		pages := 0
		for cursor := ""; pages == 0 || cursor != ""; pages++ {
			byQuery := f.get("/api/tools?limit=2&" + query + cursor)
			byPath := f.get(path + "?limit=2" + cursor)
			if string(byPath.body) != string(byQuery.body) {
				t.Errorf("%s: %s\nby query: %s", path, byPath.body, byQuery.body)
			}
			cursor = ""
			if next := decode[struct {
				Cursor string `json:"next_cursor"`
			}](byPath, http.StatusOK).Cursor; next != "" {
				cursor = "&cursor=" + next
			}
		}
		if pages < 2 {
			t.Errorf("%s has %d pages", path, pages)
		}
		for _, parameter := range []string{"view=grouped", "format=mcp"} {
			if r := f.get(path + "?" + parameter); r.status != http.StatusBadRequest {
				t.Errorf("%s?%s: %d", path, parameter, r.status)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	f := threeDevices(t)
	f.connect(0, session("z1"), echo, tools("camera_snap")...) // what camera.snap would be called by a model
	type function struct {
		Name, Description string
		Parameters        map[string]any
	}
	type row struct {
		Name, Description, Type string
		InputSchema             map[string]any `json:"input_schema"`
		MCPSchema               map[string]any `json:"inputSchema"`
		Function                function
	}
	type list struct {
		Tools      []row
		Names      map[string]string
		NextCursor string `json:"next_cursor"`
	}
	mcp := decode[list](f.get("/api/tools?format=mcp"), 200)
	var names []string
	for _, r := range mcp.Tools {
		names = append(names, r.Name+": "+r.Description)
		if r.MCPSchema["type"] != "object" {
			t.Errorf("row %+v", r)
		}
	}
	// door.open may not be called; of camera.snap the most senior session's definition is shown.
	equal(t, "mcp", names, []string{"camera.snap: Takes a Picture", "camera_snap: does camera_snap",
		"locate: where it is"})
	if mcp.Names != nil {
		t.Errorf("MCP allows dots, but names is %v", mcp.Names)
	}
	openai, anthropic := decode[list](f.get("/api/tools?format=openai"), 200),
		decode[list](f.get("/api/tools?format=anthropic"), 200)
	if len(openai.Tools) != 3 || len(anthropic.Tools) != 3 || !maps.Equal(openai.Names, anthropic.Names) ||
		len(openai.Names) != 1 {
		t.Fatalf("openai %+v, anthropic %+v", openai, anthropic)
	}
	seen := make(map[string]bool)
	for i, r := range openai.Tools {
		shown := r.Function.Name
		if r.Type != "function" || seen[shown] || shown != anthropic.Tools[i].Name ||
			r.Function.Parameters["type"] != "object" ||
			anthropic.Tools[i].InputSchema["type"] != "object" {
			t.Errorf("row %+v", r)
		}
		seen[shown] = true
	}
	renamed := slices.Collect(maps.Keys(openai.Names))[0]
	if openai.Names[renamed] != "camera.snap" || !seen[renamed] || !seen["camera_snap"] || renamed == "camera_snap" {
		t.Errorf("names %v, shown %v", openai.Names, seen)
	}
	for query, want := range map[string]int{"&user_id=anna": 2, "&name=locate": 1, "&q=slowly": 0,
		"&session_id=s3": 1, "&source_type=builtin": 0} {
		if got := decode[list](f.get("/api/tools?format=openai"+query), 200); len(got.Tools) != want {
			t.Errorf("%s: %d tools, want %d", query, len(got.Tools), want)
		}
	}
	// Pages fit together, and a name does not depend on the page it is on.
	var paged []string
	path := "/api/tools?format=openai&limit=1"
	for next := path; next != ""; {
		page := decode[list](f.get(next), 200)
		for _, r := range page.Tools {
			paged = append(paged, r.Function.Name)
		}
		if next = ""; page.NextCursor != "" {
			next = path + "&cursor=" + page.NextCursor
		}
	}
	if len(paged) != 3 || paged[0] != renamed {
		t.Errorf("pages %v", paged)
	}
}

func TestHeadOfLists(t *testing.T) {
	f := threeDevices(t)
	for _, path := range []string{"/api/tools", "/api/sessions", "/api/sessions/s1", "/healthz", "/readyz",
		"/openapi.json"} {
		plain := http.Header{"Accept-Encoding": {"identity"}} // the transport asks for gzip with GET only
		get, head := f.send(request{path: path, header: plain}), f.send(request{method: http.MethodHead, path: path,
			header: plain})
		if head.status != 200 || head.header.Get("Etag") != get.header.Get("Etag") || len(head.body) != 0 ||
			head.header.Get("Content-Length") != get.header.Get("Content-Length") {
			t.Errorf("%s: status %d, ETag %q, %d bytes", path, head.status, head.header.Get("Etag"), len(head.body))
		}
	}
}
