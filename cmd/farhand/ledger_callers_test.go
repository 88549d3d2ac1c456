package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// ledgerShapes are the ways in which callers call. Each is as likely as the others.
var ledgerShapes = []struct {
	name string
	call func(c *ledgerCaller, ctx context.Context)
}{
	{"light", func(c *ledgerCaller, ctx context.Context) {
		c.plain(ctx, "light", ledgerWork{DelayMS: c.random.IntN(100)}, "")
	}},
	{"slow", func(c *ledgerCaller, ctx context.Context) {
		c.plain(ctx, "slow", ledgerWork{DelayMS: 250 + c.random.IntN(600)}, "")
	}},
	{"twice", func(c *ledgerCaller, ctx context.Context) {
		c.plain(ctx, "twice", ledgerWork{DelayMS: c.random.IntN(500), Twice: true}, "")
	}},
	{"keyed", (*ledgerCaller).keyed},
	{"async", func(c *ledgerCaller, ctx context.Context) { c.async(ctx, "async", false) }},
	{"cancelled", func(c *ledgerCaller, ctx context.Context) { c.async(ctx, "cancelled", true) }},
	{"hung up", (*ledgerCaller).disconnect},
	{"reports", func(c *ledgerCaller, ctx context.Context) {
		c.plain(ctx, "reports", ledgerWork{DelayMS: 300 + c.random.IntN(300), Reports: 3}, "")
	}},
	{"too slow", func(c *ledgerCaller, ctx context.Context) {
		c.plain(ctx, "too slow", ledgerWork{DelayMS: 600 + c.random.IntN(1500)}, `,"timeout_ms":500`)
	}},
	{"queued", func(c *ledgerCaller, ctx context.Context) { c.queued(ctx, "queued") }},
	{"queued, keyed", func(c *ledgerCaller, ctx context.Context) { c.queued(ctx, "queued, keyed") }},
	{"queued, cancelled", func(c *ledgerCaller, ctx context.Context) { c.queued(ctx, "queued, cancelled") }},
	{"approved", (*ledgerCaller).approved},
	{"all", func(c *ledgerCaller, ctx context.Context) { c.group(ctx, "all") }},
	{"first", func(c *ledgerCaller, ctx context.Context) { c.group(ctx, "first") }},
}

// ledgerCaller makes calls, one after the other.
type ledgerCaller struct {
	book    *ledger
	fleet   *faultFleet
	http    *http.Client
	random  *rand.Rand
	devices []*ledgerDevice // for queued calls
	limit   time.Duration   // the timeout of its calls; zero: drawn for each
}

func (c *ledgerCaller) run(ctx context.Context) {
	for ctx.Err() == nil {
		ledgerShapes[c.random.IntN(len(ledgerShapes))].call(c, ctx)
		waitFor(ctx, time.Duration(5+c.random.IntN(40))*time.Millisecond)
	}
}

// draw begins a call: where it goes, and how much time it has.
func (c *ledgerCaller) draw(shape string, work *ledgerWork, more string) (ledgerCall, string, string) {
	entry := ledgerCall{
		nonce: fmt.Sprintf("%016x", c.random.Uint64()), session: fmt.Sprintf("device-%d", c.random.IntN(ledgerDevices)),
		tool: ledgerTools[c.random.IntN(len(ledgerTools))], shape: shape,
		limit: cmp.Or(c.limit, time.Duration(500+c.random.IntN(2500))*time.Millisecond),
	}
	work.Nonce = entry.nonce
	args, err := json.Marshal(work)
	if err != nil {
		panic(err)
	}
	if strings.Contains(more, "timeout_ms") {
		entry.limit = 500 * time.Millisecond
	} else {
		more += fmt.Sprintf(`,"timeout_ms":%d`, entry.limit.Milliseconds())
	}
	entry.pod = c.fleet.urls()[c.random.IntN(ledgerPods)]
	return entry, fmt.Sprintf("%s/api/sessions/%s/tools/%s/call", entry.pod, entry.session, entry.tool),
		fmt.Sprintf(`{"args":%s%s}`, args, more)
}

// plain makes a call that is waited for.
func (c *ledgerCaller) plain(ctx context.Context, shape string, work ledgerWork, more string) {
	entry, url, body := c.draw(shape, &work, more)
	c.finish(&entry, c.post(context.WithoutCancel(ctx), &entry, url, body))
}

// keyed makes a call with a key, sometimes twice at once: both must be one.
func (c *ledgerCaller) keyed(ctx context.Context) {
	work := ledgerWork{DelayMS: c.random.IntN(600), Twice: c.random.IntN(3) == 0}
	key := fmt.Sprintf("k%x", c.random.Uint64())
	entry, url, body := c.draw("keyed", &work, fmt.Sprintf(`,"idempotency_key":%q`, key))
	entry.key = key
	second, other := entry, make(chan struct{})
	if again := c.random.IntN(2) == 0; again {
		second.pod = c.fleet.urls()[c.random.IntN(ledgerPods)]
		url := strings.Replace(url, entry.pod, second.pod, 1)
		go func() {
			defer close(other)
			c.finish(&second, c.post(context.WithoutCancel(ctx), &second, url, body))
		}()
	} else {
		close(other)
	}
	c.finish(&entry, c.post(context.WithoutCancel(ctx), &entry, url, body))
	<-other
}

// async starts a call, and follows its record on any pod, or cancels it on the way.
func (c *ledgerCaller) async(ctx context.Context, shape string, cancel bool) {
	work := ledgerWork{DelayMS: c.random.IntN(800), Reports: c.random.IntN(3), Twice: c.random.IntN(3) == 0}
	entry, url, body := c.draw(shape, &work, `,"mode":"async"`)
	c.finish(&entry, c.post(context.WithoutCancel(ctx), &entry, url, body))
	if entry.broken || entry.status != http.StatusAccepted {
		return
	}
	if cancel {
		waitFor(ctx, time.Duration(c.random.IntN(800))*time.Millisecond)
		c.read(http.MethodDelete, entry.CallID, "")
		c.read(http.MethodGet, entry.CallID, "")
		return
	}
	for end := time.Now().Add(entry.limit + 3*time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if c.read(http.MethodGet, entry.CallID, "?wait_ms=500") {
			return
		}
	}
}

// disconnect makes a call and does not wait for its end.
func (c *ledgerCaller) disconnect(ctx context.Context) {
	work := ledgerWork{DelayMS: c.random.IntN(800)}
	entry, url, body := c.draw("hung up", &work, "")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		time.Duration(20+c.random.IntN(600))*time.Millisecond)
	defer cancel()
	c.finish(&entry, c.post(ctx, &entry, url, body))
}

// post makes the request and notes what it came to. An error means that nothing was heard.
func (c *ledgerCaller) post(ctx context.Context, entry *ledgerCall, url, body string) error {
	heard := struct {
		*answer
		State    string    `json:"state"`
		Expires  time.Time `json:"expires_at"`
		Approval string    `json:"approval_id"`
	}{answer: &entry.answer}
	err := c.postInto(ctx, entry, url, body, &heard)
	entry.state, entry.expires, entry.approval = heard.State, heard.Expires, heard.Approval
	return err
}

func (c *ledgerCaller) postInto(ctx context.Context, entry *ledgerCall, url, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	entry.asked = time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	entry.status = resp.StatusCode
	return json.NewDecoder(resp.Body).Decode(into)
}

// finish writes a call down.
func (c *ledgerCaller) finish(entry *ledgerCall, err error) {
	entry.heard, entry.broken = time.Now(), err != nil
	add(c.book, &c.book.asked, *entry)
	if errors.Is(err, syscall.ECONNREFUSED) {
		waitBriefly(20 * time.Millisecond)
	}
}

// read reads a record on any pod, or cancels its call, and writes down what it says. It reports whether it is final.
func (c *ledgerCaller) read(method, callID, query string) bool {
	r, err := readLedgerRecord(c.http, method, c.fleet.urls()[c.random.IntN(ledgerPods)]+"/api/calls/"+callID+query,
		callID)
	if err != nil {
		return false
	}
	add(c.book, &c.book.seen, r)
	return r.missing || registry.State(r.state).Final()
}

// errNoRecord means that a pod could not say what is in a record.
var errNoRecord = errors.New("no answer")

func readLedgerRecord(h *http.Client, method, url, callID string) (ledgerRecord, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return ledgerRecord{}, err
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := h.Do(req)
	if err != nil {
		return ledgerRecord{}, err
	}
	defer resp.Body.Close()
	var said struct {
		State, Output, Dispatched string
		Late                      bool
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return ledgerRecord{}, err
	}
	r := ledgerRecord{
		callID: callID, state: said.State, output: said.Output, dispatched: said.Dispatched, late: said.Late,
		missing: resp.StatusCode == http.StatusNotFound, at: time.Now(),
	}
	if resp.StatusCode != http.StatusOK && !r.missing {
		return r, errNoRecord
	}
	return r, nil
}

// readLedgerEvents reads the log of a call that has ended.
func readLedgerEvents(t testing.TB, h *http.Client, url string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	resp, err := h.Do(req)
	if err != nil {
		t.Errorf("events: %v", err)
		return nil
	}
	defer func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
		t.Errorf("events of %s: %d", url, resp.StatusCode)
	}
	var events []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct{ Type, State string }
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Errorf("event %s: %v", data, err)
		}
		if e.Type != "state" {
			e.State = "."
		}
		events = append(events, e.State)
	}
	return events
}
