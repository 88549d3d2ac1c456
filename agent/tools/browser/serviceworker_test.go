//go:build linux

package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/tools/browser"
)

// installing installs a service worker. Its page says when the worker has it.
const installing = `<!doctype html><title>installing</title><script>
navigator.serviceWorker.addEventListener('controllerchange',()=>document.title='installed')
navigator.serviceWorker.register('/worker.js')
setInterval(()=>{const c=navigator.serviceWorker.controller;if(c)c.postMessage('try')},100)</script>`

// worker answers for a page, and tries URLs when its page says so.
const worker = `addEventListener('install',()=>skipWaiting())
addEventListener('activate',e=>e.waitUntil(clients.claim()))
addEventListener('fetch',e=>{if(new URL(e.request.url).pathname=='/who')
e.respondWith(new Response('<title>the worker</title>',{headers:{'Content-Type':'text/html'}}))})
let tried=false
addEventListener('message',e=>{if(tried)return;tried=true
e.waitUntil(Promise.allSettled(URLS.map(u=>fetch(u,{mode:'no-cors'}))).then(()=>fetch('/tried',{method:'POST'})))})`

// A service worker stays with the browser of its session: it answers for no page of another, gets no farther than a
// page, and is gone when the browser is.
func TestServiceWorkers(t *testing.T) { // by itself: the pages of the other tests take two processors already
	refused := []string{"169.254.169.254", "metadata.test", "[fd00:ec2::254]", "nat64.test", "0.0.0.0"}
	mux, tried := http.NewServeMux(), make(chan struct{}, 1)
	site := httptest.NewServer(mux) // of this machine, because workers need HTTPS or that
	t.Cleanup(site.Close)
	at, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := newCanary(t)
	urls := make([]string, len(refused))
	for i, host := range refused {
		urls[i] = fmt.Sprintf("http://%s:%d/", host, c.port)
	}
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	serve := func(path, kind, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, text)
		})
	}
	serve("/", "text/html", installing)
	serve("/who", "text/html", "<title>the site</title>")
	serve("/worker.js", "text/javascript", "const URLS="+string(list)+"\n"+worker)
	mux.HandleFunc("POST /tried", func(http.ResponseWriter, *http.Request) {
		select {
		case tried <- struct{}{}:
		default:
		}
	})
	b := newCaged(t, c, func(cfg *browser.Config) {
		cfg.Egress.AllowPrivate = true
		cfg.Egress.Ports = append(cfg.Egress.Ports, port)
	})
	b.do(`{"action":"open","url":%q}`, site.URL+"/")
	select {
	case <-tried:
	case <-time.After(patience):
		t.Fatal("the worker was not installed, or has not tried them all")
	}
	for _, address := range b.net.elsewhere() {
		if !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("the worker reached %s", address)
		}
	}
	const visit = `{"action":"navigate","url":%q}`
	who := site.URL + "/who"
	b.contains(b.do(visit, who), "the worker")
	tablet := b.of("tablet")
	b.runAs(tablet, `{"action":"start"}`)
	if res := b.runAs(tablet, visit, who); !strings.Contains(res.Output, "the site") {
		t.Errorf("another session: %+v", res)
	}
	b.do(`{"action":"stop"}`)
	b.do(`{"action":"start"}`)
	b.contains(b.do(visit, who), "the site")
}
