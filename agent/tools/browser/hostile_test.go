//go:build linux

package browser_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/tools/browser"
)

// peak returns how much the heap of this process grows at most while a function runs, in bytes.
func peak(while func()) uint64 {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, most := heap(), uint64(0)
	done, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				most = max(most, heap())
			}
		}
	}()
	while()
	close(done)
	<-sampled
	return max(most, before) - before
}

// A page of nested frames, each with a large tree, takes little memory of the gateway, however long its texts are.
func TestSnapshotOfAHostilePage(t *testing.T) {
	b := newBench(t, nil)
	const frames, most = 3, 96 << 20
	b.net.mux.HandleFunc("/frame/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[len("/frame/"):])
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!doctype html><button>Button of frame %d</button>", n)
		if n < frames {
			fmt.Fprintf(w, "<iframe src=/frame/%d></iframe>", n+1)
		}
		fmt.Fprintf(w, `<script>const long='x'.repeat(1<<20)
const add=label=>{const a=document.createElement('button');a.ariaLabel=label;document.body.append(a)}
for(let i=0;i<5000;i++)add('b'+i+'y'.repeat(500))
for(let i=0;i<4;i++)add(long)
</script>`)
	})
	b.do(`{"action":"open","url":"http://pages.test/frame/1"}`)
	var page string
	if grown := peak(func() { page = b.do(`{"action":"snapshot"}`) }); grown > most {
		t.Errorf("a snapshot took %d MiB", grown>>20)
	}
	for n := range frames {
		b.contains(page, fmt.Sprintf("Button of frame %d", n+1))
	}
	b.contains(page, "more lines not shown")
	if len(page) > 50<<10 {
		t.Errorf("the snapshot has %d bytes", len(page))
	}
}

// A tree that is too large is cut, and the snapshot says so.
func TestSnapshotOfAHugePage(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.net.page("/huge", `<button>First</button><div id=d></div><script>
for(let i=0;i<15000;i++){const a=document.createElement('a')
a.href='/'+i;a.textContent='Link '+i;d.append(a)}</script>`)
	b.do(`{"action":"open","url":"http://pages.test/huge"}`)
	b.contains(b.do(`{"action":"snapshot"}`), `button "First"`, "too large")
}

// What a page writes to the console, or fetches from itself, does not reach the gateway's memory.
func TestConsoleOfAHostilePage(t *testing.T) {
	b := newBench(t, nil)
	b.net.page("/console", `<title>writes</title><script>const s='x'.repeat(4<<20);let i=0
const write=()=>{for(let j=0;j<5;j++)console.log(s+i++,{s});
if(i<40)setTimeout(write);else document.title='written'};setTimeout(write)</script>`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.comes(b.do(`{"action":"open","url":"http://pages.test/console"}`), "written")
	runtime.ReadMemStats(&after)
	if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 128 {
		t.Errorf("%d MiB were allocated", grown)
	}
}

// A page that keeps the gateway busy loses its browser, and the next page works.
func TestFloodOfEvents(t *testing.T) {
	b := newBench(t, nil)
	b.net.page("/flood", `<title>flood</title><script>const s='data:,'+'x'.repeat(1<<20)
setInterval(()=>{for(let i=0;i<20;i++)fetch(s+i).catch(()=>0)},10)</script>`)
	b.net.page("/good", `<title>good</title>`)
	b.run(`{"action":"open","url":"http://pages.test/flood"}`) // it may end meanwhile
	b.comes("", "too busy")
	b.contains(b.do(`{"action":"open","url":"http://pages.test/good"}`), "good")
}

// A tenant whose snapshots take all the memory that it may have leaves room for another tenant.
func TestPagesAreReadInTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.net.page("/small", `<button>Small</button>`)
	hold := browser.HoldReading(b.browsers, "hostile", 8)
	defer hold()
	other := b.ofUser(auth.Identity{Tenant: "other"}, "phone")
	b.runAs(other, `{"action":"open","url":"http://pages.test/small"}`)
	if res := b.runAs(other, `{"action":"snapshot"}`); !strings.Contains(res.Output, "Small") {
		t.Error(res.Output)
	}
	if held := b.browsers.Pools()["page_bytes"].Held; held != 32<<20 {
		t.Errorf("%d bytes held", held)
	}
}
