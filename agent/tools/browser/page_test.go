//go:build linux

package browser_test

import (
	"bytes"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/registry"
)

// What pages do, each in a tab of the same browser.
func TestPages(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *browser.Config) { c.MaxTabs = 4 })
	b.do(`{"action":"start"}`)
	b.net.page("/refs2", `<button>Other</button>`)
	for _, tt := range []struct {
		name string
		test func(*bench)
	}{
		{"form", testForm}, {"refs", testRefs}, {"drag and hover", testDragAndHover}, {"dialogs", testDialogs},
		{"downloads", testDownloads}, {"frames", testFrames}, {"screenshot", testScreenshot},
		{"long page", testLongPage}, {"slow page", testSlowPage}, {"list", testList},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(b.with(t))
		})
	}
	b.do(`{"action":"stop"}`)
}

func (b *bench) navigate(path string) string {
	b.Helper()
	return b.do(`{"action":"navigate","url":"http://pages.test%s"}`, path)
}

func (b *bench) act(kind, ref string) string {
	b.Helper()
	return b.do(`{"action":"act","request":{"kind":%q,"ref":%q}}`, kind, ref)
}

// Refs are those of the last snapshot of the page that is there.
func testRefs(b *bench) {
	b.net.page("/refs", `<button onclick="this.remove()">Once</button><a href="/refs2">More</a><div id=out></div>`)
	b.navigate("/refs")
	b.fails("there is no element", `{"action":"act","request":{"kind":"click","ref":"e999999"}}`)
	b.fails("there is no element", `{"action":"act","request":{"kind":"click","ref":"button"}}`)
	old := b.ref(`button "Once"`)
	page := b.do(`{"action":"snapshot"}`)
	once, more := b.refIn(page, `button "Once"`), b.refIn(page, `link "More"`)
	b.contains(page, `to="http://pages.test/refs2"`)
	b.fails("take a new snapshot", `{"action":"act","request":{"kind":"click","ref":%q}}`, old)
	b.contains(b.act("click", "["+once+"]"), "Done.")
	b.fails("is stale", `{"action":"act","request":{"kind":"click","ref":%q}}`, once)
	b.contains(b.act("click", more), "http://pages.test/refs2")
	b.fails("is stale", `{"action":"act","request":{"kind":"click","ref":%q}}`, more)
	b.navigate("/refs")
	b.fails("is stale", `{"action":"act","request":{"kind":"click","ref":%q}}`, more)
}

func testDragAndHover(b *bench) {
	b.net.page("/drag", `<div id=a draggable=true style="width:90px;height:40px;background:red">Parcel</div>
<div id=b style="width:300px;height:200px;margin-top:60px;background:#ddd">Truck</div><p id=out>empty</p>
<button onmouseover="document.title='hovered'">Hover me</button>
<script>a.ondragstart=e=>e.dataTransfer.setData('text/plain','parcel');b.ondragover=e=>e.preventDefault();
b.ondrop=e=>{e.preventDefault();out.textContent='got '+e.dataTransfer.getData('text/plain')}</script>`)
	b.navigate("/drag")
	page := b.do(`{"action":"snapshot"}`)
	b.contains(b.do(`{"action":"act","request":{"kind":"drag","ref":%q,"targetRef":%q}}`, b.refIn(page, "group"),
		b.refIn(page[strings.Index(page, "Parcel"):], "generic")), "Done.")
	b.contains(b.do(`{"action":"snapshot"}`), "got parcel")
	b.contains(b.act("hover", b.ref(`button "Hover me"`)), `"hovered"`)
}

// Dialogs are dismissed and told, also those of a page that is left.
func testDialogs(b *bench) {
	b.net.page("/dialogs", `<button
onclick="document.title=confirm('Sell everything?')+'/'+prompt('Name?')">Ask</button>
<script>onbeforeunload=e=>{e.preventDefault();return 'x'}</script>`)
	b.navigate("/dialogs")
	said := b.act("click", b.ref(`button "Ask"`))
	b.contains(said, `dismissed: "Sell everything?"`, `(prompt)`, `"false/null"`)
	b.navigate("/refs2")
}

func testDownloads(b *bench) {
	b.net.mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="x.bin"`)
		w.Write(make([]byte, 1<<20))
	})
	b.net.page("/downloads", `<a href="/file">Get</a><a id=d download=y.txt href="data:text/plain,hello">Data</a>
<label>Upload <input type=file></label>`)
	b.fails("downloads are off", `{"action":"navigate","url":"http://pages.test/file"}`)
	b.navigate("/downloads")
	page := b.do(`{"action":"snapshot"}`)
	b.contains(b.act("click", b.refIn(page, `link "Get"`)), "a download was blocked", "http://pages.test/file")
	b.contains(b.act("click", b.refIn(page, `link "Data"`)), "a download was blocked")
	b.fails("file upload", `{"action":"act","request":{"kind":"click","ref":%q}}`, b.refIn(page, `button "Upload"`))
}

// Frames of the same site are part of a snapshot, and what is in them can be used.
func testFrames(b *bench) {
	b.net.page("/outer", `<h1>Outer</h1><iframe src="/inner" title=in></iframe>
<iframe src="http://other.example.test/inner" title=far></iframe>`)
	b.net.page("/inner", `<button onclick="this.textContent='Pressed'">Press</button>`)
	b.navigate("/outer")
	page := b.do(`{"action":"snapshot"}`)
	b.contains(page, "Outer", `Iframe "in"`)
	b.act("click", b.refIn(page, `button "Press"`))
	b.contains(b.do(`{"action":"snapshot"}`), `button "Pressed"`)
}

// A picture fits into a result, also one that cannot be made small without loss.
func testScreenshot(b *bench) {
	b.net.page("/noise", `<body style="margin:0"><canvas id=c width=1280 height=800></canvas><script>
const x=c.getContext('2d'),d=x.createImageData(1280,800);
for(let i=0;i<d.data.length;i++)d.data[i]=i%4==3?255:Math.random()*256;x.putImageData(d,0,0)</script>`)
	for path, mime := range map[string]string{"/refs2": "image/png", "/noise": "image/jpeg"} {
		b.navigate(path)
		res := b.run(`{"action":"screenshot"}`)
		if !res.Success || len(res.Parts) != 1 || strings.Contains(res.Output, "base64") || len(res.Output) > 200 {
			b.Fatalf("%s, %d parts", res.Output, len(res.Parts))
		}
		part := res.Parts[0]
		_, format, err := image.Decode(bytes.NewReader(part.Data))
		if err != nil || "image/"+format != mime || part.MIMEType != mime || part.Type != registry.PartImage ||
			part.Size != int64(len(part.Data)) || part.Size > registry.MaxInlinePart {
			b.Errorf("%s: %s, %s, %d bytes, %v", path, part.MIMEType, format, part.Size, err)
		}
	}
}

func testLongPage(b *bench) {
	b.net.page("/long", `<title>Long</title><body><script>for(let i=0;i<5000;i++){
const e=document.createElement('button');e.textContent='Button '+i+'x'.repeat(50);document.body.append(e)}</script>`)
	b.navigate("/long")
	page := b.do(`{"action":"snapshot"}`)
	if len(page) > 45<<10 || !strings.Contains(page, "more lines not shown") {
		b.Errorf("%d bytes", len(page))
	}
}

// A call ends with its context, and what it left behind is in nobody's way.
func testSlowPage(b *bench) {
	reached, hold := make(chan struct{}, 10), make(chan struct{})
	b.net.mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-hold:
		}
	})
	defer close(hold)
	res := b.until(`{"action":"navigate","url":"http://pages.test/slow"}`, func() { <-reached })
	if res.Success || !strings.Contains(res.Output, "in time") {
		b.Errorf("%+v", res)
	}
	b.contains(b.navigate("/refs2"), "http://pages.test/refs2")
}

// Tabs are opened, chosen, opened by pages, and there are not too many.
func testList(b *bench) {
	b.net.page("/popup", `<title>Popup</title><a href="/refs2" target=_blank>New</a>
<button onclick="for(let i=0;i<30;i++)open('/refs2?'+i)">Many</button>`)
	b.contains(b.do(`{"action":"open","url":"http://pages.test/popup"}`), "Tab t")
	page := b.do(`{"action":"snapshot"}`)
	b.contains(b.act("click", b.refIn(page, `link "New"`)), "The page opened a tab. Tab t")
	b.act("click", b.refIn(page, `button "Many"`))
	status := b.do(`{"action":"status"}`)
	if n := strings.Count(status, "Tab t"); n < 3 || n > 4 || strings.Count(status, "(current)") != 1 {
		b.Error(status)
	}
	b.fails("there is no tab", `{"action":"snapshot","targetId":"t99"}`)
	for range 10 {
		if res := b.run(`{"action":"open","url":"http://pages.test/refs2"}`); !res.Success {
			b.contains(res.Output, "the limit of")
			return
		}
	}
	b.Error("there is no end of tabs")
}
