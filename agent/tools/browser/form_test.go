//go:build linux

package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
)

const formPage = `<title>Order</title><h1>Order a pizza</h1><form action=/order>
<label>Name <input name=name></label>
<label>Password <input name=secret type=password value="old-secret"></label>
<label>Notes <textarea name=notes>old</textarea></label>
<label>Size <select name=size><option value=s>Small</option><option value=l>Large</option></select></label>
<label><input type=checkbox name=hot value=yes> Hot</label>
<label>Picture <input type=file name=picture></label>
<label>Coupon <input name=coupon disabled></label><input type=hidden name=events>
<button>Send order</button></form>
<script>document.querySelectorAll('[name]').forEach(e=>{for(const k of ['input','change','keydown'])
e.addEventListener(k,()=>document.querySelector('[name=events]').value+=k+':'+e.name+' ')})</script>`

// A form is filled, sent, and its answer read.
func testForm(b *bench) {
	b.net.page("/{$}", formPage)
	b.net.mux.HandleFunc("/order", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<title>Thanks</title>")
		for _, name := range []string{"name", "secret", "notes", "size", "hot", "events"} {
			fmt.Fprintf(w, "<p>%s is %s.</p>", name, r.URL.Query().Get(name))
		}
	})
	b.contains(b.do(`{"action":"open","url":"http://pizza.test/"}`), `Tab t1: "Order" http://pizza.test/`)
	page := b.do(`{"action":"snapshot"}`)
	b.contains(page, `heading "Order a pizza" level=1`, `checkbox "Hot"`, "not checked",
		"value=\"(password, hidden)\"")
	if strings.Contains(page, "old-secret") {
		b.Error("a password is shown")
	}
	fill := func(line, text string) {
		b.Helper()
		b.contains(b.do(`{"action":"act","request":{"kind":"fill","ref":%q,"text":%q}}`, b.refIn(page, line), text),
			"Done. Tab t1")
	}
	b.contains(b.do(`{"action":"act","request":{"kind":"type","ref":%q,"text":"Anna"}}`,
		b.refIn(page, `textbox "Name"`)), "Done")
	fill(`textbox "Password"`, "new-secret")
	fill(`textbox "Notes"`, "no\nonions")
	fill(`combobox "Size"`, "large")
	fill(`checkbox "Hot"`, "true")
	for line, why := range map[string]string{
		`button "Picture"`: "is a file upload", `textbox "Coupon"`: "is disabled", `combobox "Size"`: "Small, Large",
		`button "Send order"`: "cannot be filled",
	} {
		b.fails(why, `{"action":"act","request":{"kind":"fill","ref":%q,"text":"x"}}`, b.refIn(page, line))
	}
	b.contains(b.do(`{"action":"act","request":{"kind":"click","ref":%q}}`, b.refIn(page, `button "Send order"`)),
		`Done. Tab t1: "Thanks" http://pizza.test/order?name=Anna`)
	b.contains(b.do(`{"action":"snapshot"}`), "name is Anna.", "secret is new-secret.", "notes is no onions.",
		"size is l.", "hot is yes.", "keydown:name input:name", "input:secret change:secret",
		"change:size", "change:hot")
}

// What is wrong with arguments is told at once, before anything runs.
func TestArguments(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	check := b.tool.(agent.ArgsValidator)
	for args, want := range map[string]string{
		`{"action":"open"}`:     "url: is required to open",
		`{"action":"navigate"}`: "url: is required to navigate",
		`{"action":"act"}`:      "request: is required",
		`{"action":"act","request":{"kind":"type","ref":"e1"}}`: "request.text",
		`{"action":"act","request":{"kind":"drag","ref":"e1"}}`: "request.targetRef",
		`{"action":"status"}`: "",
		`{"action":"act","request":{"kind":"fill","ref":"e1"}}`:       "",
		`{"action":"navigate","url":"https://x.test","targetId":"t"}`: "",
	} {
		err := check.Validate(t.Context(), json.RawMessage(args))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if spec, err := b.tool.Spec().Normalize(); err != nil || spec.Annotations.OpenWorldHint == nil ||
		!*spec.Annotations.OpenWorldHint {
		t.Errorf("%+v, %v", spec, err)
	}
	// Without a browser there is nothing to see, and nothing starts.
	b.contains(b.do(`{"action":"status"}`), "No browser is running")
	b.contains(b.do(`{"action":"stop"}`), "No browser is running")
	b.fails("open a page first", `{"action":"snapshot"}`)
	b.fails("open a page first", `{"action":"act","request":{"kind":"click","ref":"e1"}}`)
}
