package browser_test

import (
	"fmt"
	"net/http"
	"testing"
)

const formPage = `<title>Order</title><h1>Order a pizza</h1><form action=/order>
<label>Name <input name=name></label>
<label>Password <input name=secret type=password value="old-secret"></label>
<label>Notes <textarea name=notes></textarea></label>
<label>Size <select name=size><option value=s>Small</option><option value=l>Large</option></select></label>
<label><input type=checkbox name=hot value=yes> Hot</label>
<label>Picture <input type=file name=picture></label>
<button>Send order</button></form>
<script>window.events=[];document.querySelectorAll('input,select').forEach(e=>{for(const k of ['input','change'])
e.addEventListener(k,()=>events.push(k+':'+e.name))})</script>`

// A form is filled, sent, and its answer read.
func TestForm(t *testing.T) {
	b := newBench(t, nil)
	b.net.page("/{$}", formPage)
	b.net.mux.HandleFunc("/order", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>Thanks</title><p>Order 4711: %s, %s, %s, %s, %s</p>", q.Get("name"), q.Get("secret"),
			q.Get("notes"), q.Get("size"), q.Get("hot"))
	})
	b.contains(b.do(`{"action":"open","url":"http://pizza.test/"}`), `Tab t1: "Order" http://pizza.test/`)
	page := b.do(`{"action":"snapshot"}`)
	t.Log(page)
	t.Log(b.do(`{"action":"status"}`))
}
