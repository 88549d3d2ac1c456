package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

// Tools may have names of any script: lists page over them, and calls find them.
func TestNamesOfAnyScript(t *testing.T) {
	onEachStore(t, setup{}, func(f *fleet) {
		names := []string{"2fa", "_hidden", "größe", "погода", "天气", "날씨", "नमस्ते"}
		f.connect(1, session("s1"), echo, tools(names...)...)
		for _, query := range []string{"", "&view=grouped", "&format=openai", "&format=anthropic", "&format=mcp",
			"&session_id=s1&view=grouped"} {
			found, next := make(map[string]bool), ""
			for range len(names) + 1 {
				r := f.get("/api/tools?limit=2" + query + next)
				list := decode[struct {
					Tools []struct {
						Name     string
						Function struct{ Name string }
					}
					Names map[string]string
					Next  string `json:"next_cursor"`
				}](r, 200)
				for _, tool := range list.Tools {
					name := tool.Name + tool.Function.Name
					if own := list.Names[name]; own != "" {
						name = own
					}
					if found[name] {
						f.Errorf("%s: %s twice", query, name)
					}
					found[name] = true
				}
				if next = "&cursor=" + url.QueryEscape(list.Next); list.Next == "" {
					break
				}
			}
			for _, name := range names {
				if !found[name] {
					f.Errorf("%s: %s is not listed: %v", query, name, found)
				}
			}
		}
		for i, name := range names {
			for pod := range 2 {
				for _, path := range []string{"/api/tools/", "/api/sessions/s1/tools/"} {
					r := f.send(request{method: http.MethodPost, path: path + url.PathEscape(name) + "/call",
						body: fmt.Sprintf(`{"args":{"n":%d}}`, i), pod: pod})
					if a := decode[answer](r, 200); a.Output != fmt.Sprintf(`{"n":%d}`, i) {
						f.Errorf("%s: %s", name, r.body)
					}
				}
			}
			if r := f.get("/api/tools?name=" + url.QueryEscape(name)); r.status != 200 {
				f.Errorf("%s: %s", name, r.body)
			}
		}
	})
}
