package mcpcontent_test

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/registry"
)

var picture = []byte("\x89PNG\x0D\x0A\x1A\x0A" + strings.Repeat("\xff\x00", 60))

func resultOf(structured string, blocks ...mcpcontent.Block) registry.Result {
	r := mcpcontent.Reader{Room: registry.MaxInlinePart}
	for _, b := range blocks {
		r.Add(b)
	}
	var v registry.JSON
	if structured != "" {
		v = registry.MustJSON(structured)
	}
	return r.Result(true, v)
}

// What an MCP server answers reaches an MCP client as it was: each block keeps its kind, type and URI.
func TestContentGoesBothWays(t *testing.T) {
	res := resultOf("",
		mcpcontent.Block{Type: mcpcontent.Text, Text: "before"},
		mcpcontent.Block{
			Type: mcpcontent.Resource, URI: "test://note.md", MIMEType: "text/markdown", Text: "# Note\nwords",
		},
		mcpcontent.Block{Type: mcpcontent.Text, Text: "after"},
		mcpcontent.Block{Type: mcpcontent.Image, MIMEType: "image/png", Data: picture},
		mcpcontent.Block{Type: mcpcontent.Resource, URI: "test://a.png", MIMEType: "image/png", Data: picture},
		mcpcontent.Block{Type: mcpcontent.Resource, URI: "test://a.yaml", MIMEType: "application/yaml", Text: "a: 1"},
		mcpcontent.Block{Type: mcpcontent.Resource, URI: "test://plain", Text: "plain"},
		mcpcontent.Block{Type: mcpcontent.Resource, URI: "test://b.bin", Data: []byte{0, 1}},
	)
	if want := "before\n# Note\nwords\nafter\na: 1\nplain"; res.Output != want {
		t.Errorf("a model reads %q, want %q", res.Output, want)
	}
	code := base64.StdEncoding.EncodeToString(picture)
	wantContent(t, res, `[{"type":"text","text":"before\nafter"},
		{"type":"resource","resource":{"uri":"test://note.md","mimeType":"text/markdown","text":"# Note\nwords"}},
		{"type":"image","data":"`+code+`","mimeType":"image/png"},
		{"type":"resource","resource":{"uri":"test://a.png","mimeType":"image/png","blob":"`+code+`"}},
		{"type":"resource","resource":{"uri":"test://a.yaml","mimeType":"application/yaml","text":"a: 1"}},
		{"type":"resource","resource":{"uri":"test://plain","mimeType":"text/plain","text":"plain"}},
		{"type":"resource","resource":{"uri":"test://b.bin","mimeType":"application/octet-stream","blob":"AAE="}}]`)
	for i, p := range res.Parts {
		if field, must := p.Check(); field != "" {
			t.Errorf("part %d: %s %s", i, field, must)
		}
	}
	wantContent(t, resultOf("", mcpcontent.Block{Type: mcpcontent.Resource, URI: "test://x", Text: "alone"}),
		`[{"type":"resource","resource":{"uri":"test://x","mimeType":"text/plain","text":"alone"}}]`)
}

func wantContent(t *testing.T, res registry.Result, want string) {
	t.Helper()
	var got, wanted struct{ Content any }
	text := append(mcpcontent.Style{CallID: "c"}.Append([]byte{'{'}, &res), '}')
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"content":`+want+`}`), &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("content %s\nwant %s", text, want)
	}
}

// Binary data is never a model's text: not in structured content, not in a text that repeats it, not in a block of a
// later version.
func TestBinaryDataIsNoText(t *testing.T) {
	code := base64.StdEncoding.EncodeToString(picture)
	unknown := []byte(strings.Repeat("\xff\xfe\xfd", 30))
	image := mcpcontent.Block{Type: mcpcontent.Image, MIMEType: "image/png", Data: picture}
	structured := `{"kind":"photo","data":"` + code + `"}`
	const shown = `{"kind":"photo","data":"[image/png, 128 bytes]"}`
	for name, tt := range map[string]struct {
		res  registry.Result
		want string
	}{
		"structured beside the image": {resultOf(structured, image), shown},
		"structured alone":            {resultOf(structured), shown},
		"text that repeats it": {resultOf(structured, mcpcontent.Block{Type: mcpcontent.Text, Text: structured}),
			shown},
		"a later block": {resultOf("", mcpcontent.Block{Type: "video", Text: `{"type":"video","data":"` + code + `"}`}),
			`{"type":"video","data":"[image/png, 128 bytes]"}`},
		"a blob of no known type": {resultOf(`["`+base64.StdEncoding.EncodeToString(unknown)+`"]`,
			mcpcontent.Block{Type: mcpcontent.Resource, URI: "a:b", Data: unknown}), `["[binary data, 90 bytes]"]`},
	} {
		if tt.res.Output != tt.want {
			t.Errorf("%s: a model reads %.200q, want %q", name, tt.res.Output, tt.want)
		}
	}
	res := registry.Result{Success: true, Output: structured, Structured: registry.MustJSON(structured)} // of a device
	text := string(mcpcontent.Style{}.Append(nil, &res))
	if strings.Count(text, code) != 1 || !strings.HasSuffix(text, `"structuredContent":`+structured) {
		t.Errorf("an MCP client gets %s", text)
	}
	res.Success = false // what failed need not keep the tool's output schema, by which clients judge it all the same
	if text := string(mcpcontent.Style{}.Append(nil, &res)); strings.Contains(text, "structuredContent") ||
		!strings.Contains(text, code) || !strings.Contains(text, `"isError":true`) {
		t.Errorf("of a failure an MCP client gets %s", text)
	}
}

// A server cannot say of a resource that it is the gateway's, or a page that the client is to show.
func TestURIsOfServers(t *testing.T) {
	for uri, kept := range map[string]bool{
		"test://x": true, "file:///a b": true, "": true,
		"FarHand://sessions": false, "ui://app/x": false, " ui://app/x": false,
		"\u3000farhand://sessions": false, "a:\x1b[2J": false, "a:\xff": false,
		"a:" + strings.Repeat("x", 2000): false,
	} {
		res := resultOf("", mcpcontent.Block{Type: mcpcontent.Resource, URI: uri, MIMEType: "text/html", Text: "words"})
		if p := res.Parts[0]; (p.URI == uri) != kept || !kept && p.URI != "" {
			t.Errorf("%.40q becomes %.40q", uri, p.URI)
		}
	}
}

// What has no place is described, or is in the output at least.
func TestPartsWithoutRoom(t *testing.T) {
	r := mcpcontent.Reader{Room: 100}
	r.Add(mcpcontent.Block{Type: mcpcontent.Image, MIMEType: "image/png", Data: picture})
	r.Add(mcpcontent.Block{Type: mcpcontent.Image, MIMEType: "image/png", Size: 1 << 30})
	r.Add(mcpcontent.Block{Type: mcpcontent.Resource, URI: "a:b", Text: strings.Repeat("words ", 100)})
	for range registry.MaxParts {
		r.Add(mcpcontent.Block{Type: mcpcontent.Audio, MIMEType: "audio/wav", Data: []byte{1}})
	}
	res := r.Result(true, registry.JSON{})
	if len(res.Parts) != registry.MaxParts || res.Parts[0].Data != nil || res.Parts[0].Size != int64(len(picture)) ||
		res.Parts[1].Size != 1<<30 || r.Room != 100-(registry.MaxParts-2) ||
		!strings.HasPrefix(res.Output, "words ") || !strings.HasSuffix(res.Output,
		"[2 more parts left out: a result may have 16]") {
		t.Errorf("%d parts, room %d, %q", len(res.Parts), r.Room, res.Output)
	}
}

// Links, parts that were not kept, and the exact output say what they are called and where they are.
func TestLinksAndExactOutput(t *testing.T) {
	res := registry.Result{Success: true, Output: "a\x1b[0mb", Parts: []registry.Part{
		{Type: registry.PartFile, Name: "log\x1b.txt", MIMEType: "text/plain", URL: "/blobs/x", Size: 7},
		{Type: registry.PartImage, MIMEType: "image/png", Size: 9},
	}}
	s := mcpcontent.Style{CallID: "c1", Origin: "https://far.example", Exact: true}
	var got struct {
		Content []struct {
			Type, Name, URI, Text string
			Size                  int64
			Resource              struct{ URI, MIMEType, Blob string }
		}
	}
	if err := json.Unmarshal(append(s.Append([]byte("{"), &res), '}'), &got); err != nil || len(got.Content) != 4 {
		t.Fatalf("%+v %v", got, err)
	}
	link, lost, exact := got.Content[1], got.Content[2], got.Content[3].Resource
	if strings.ContainsRune(got.Content[0].Text+link.Name, '\x1b') {
		t.Errorf("not cleaned: %q %q", got.Content[0].Text, link.Name)
	}
	if link.URI != "https://far.example/blobs/x" || link.Size != 7 || !strings.Contains(link.Name, "log") {
		t.Errorf("the link: %+v", link)
	}
	if !strings.HasPrefix(lost.Text, "[image, image/png, 9 bytes") {
		t.Errorf("what was not kept: %q", lost.Text)
	}
	if output, err := base64.StdEncoding.DecodeString(exact.Blob); err != nil || string(output) != res.Output ||
		exact.URI != "farhand://calls/c1/output" || exact.MIMEType != "text/plain" {
		t.Errorf("the exact output: %q %+v %v", output, exact, err)
	}
}
