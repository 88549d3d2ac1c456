package registrytest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

var activityTests = []subtest{
	{name: "the feed is read in order, forwards and backwards", run: func(f *fixture) {
		if got := f.activity("", 10) + f.lastActivity("", 10); got != "" {
			f.Errorf("in an empty feed: %s", got)
		}
		f.happen(f.tenant, 0, 250) // in one batch
		f.happen(f.tenant, 250, 260)
		var forwards, backwards []string
		for after := ""; ; {
			page := f.readActivity(after, 7)
			if len(page) == 0 {
				break
			}
			forwards, after = append(forwards, reasons(page)...), page[len(page)-1].ID
		}
		for before := ""; ; {
			page, err := f.store.LastActivity(f.ctx, f.tenant, before, 7)
			f.must(err)
			if len(page) == 0 {
				break
			}
			if len(page) > 7 {
				f.Fatalf("a page of %d", len(page))
			}
			backwards, before = append(backwards, reasons(page)...), page[len(page)-1].ID
		}
		var want []string
		for i := range 260 {
			want = append(want, strconv.Itoa(i))
		}
		if !slices.Equal(forwards, want) {
			f.Errorf("forwards %v", forwards)
		}
		slices.Reverse(want)
		if !slices.Equal(backwards, want) {
			f.Errorf("backwards %v", backwards)
		}
		if got := len(f.readActivity("", 0)); got != 100 {
			f.Errorf("a page of %d when no limit is given", got)
		}
	}},
	{name: "the feed is read backwards from a time", run: func(f *fixture) {
		f.happen(f.tenant, 0, 1)
		first, err := registry.ParseFeedID(f.readActivity("", 1)[0].ID)
		f.must(err)
		f.eventually("an entry of a later millisecond", func() bool {
			f.happen(f.tenant, 1, 2)
			newest, err := f.store.LastActivity(f.ctx, f.tenant, "", 1)
			f.must(err)
			last, err := registry.ParseFeedID(newest[0].ID)
			f.must(err)
			return last.Milli > first.Milli
		})
		for milli, want := range map[int64]int{first.Milli: 0, first.Milli + 1: 1} {
			page, err := f.store.LastActivity(f.ctx, f.tenant, registry.FeedID{Milli: milli}.String(), 100)
			f.must(err)
			for _, a := range page {
				if id, err := registry.ParseFeedID(a.ID); err != nil || id.Milli >= milli {
					f.Errorf("before %d: %s, %v", milli, a.ID, err)
				}
			}
			if min(len(page), 1) != want {
				f.Errorf("%d entries before %d, first %v", len(page), milli, first)
			}
		}
	}},
	{name: "an entry comes back as it was, without what the tool returned", run: func(f *fixture) {
		call := f.record("c1")
		call.State, call.Result = registry.StateSucceeded, output("secret")
		failed := f.record("c2")
		failed.State, failed.Err = registry.StateLost, registry.Errorf(registry.CodeLost, "gone")
		at := time.Now().UTC().Truncate(time.Millisecond)
		sent := []registry.Activity{
			{
				Tenant: f.tenant, Type: registry.ActivityCall, At: at, Pod: "a",
				SessionID: "s", DeviceID: "d", Call: &call,
			},
			{Tenant: f.tenant, Type: registry.ActivityCall, At: at, Pod: "a", Call: &failed},
			{
				Tenant: f.tenant, Type: registry.ActivityTools, At: at, Pod: "a",
				Tools: []string{"x", "<y>"}, Reason: "r\x00",
			},
		}
		f.must(f.store.AppendActivity(f.ctx, sent))
		if call.Result.Output != "secret" || sent[0].Call.Result.Structured.IsZero() {
			f.Error("the caller's own record was changed")
		}
		got := f.readActivity("", 10)
		for i := range got {
			sent[i].ID = got[i].ID
		}
		stored := call
		stored.Result, stored.Brief = &registry.Result{Success: true}, true
		sent[0].Call = &stored
		if !reflect.DeepEqual(got, sent) {
			f.Errorf("got  %+v\nwant %+v", got, sent)
		}
	}},
	{name: "a reader that waits is woken", run: func(f *fixture) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { f.follow(200) })
		}
		for i := range 200 {
			f.happen(f.tenant+"x", i, i+1)
			f.happen(f.tenant, i, i+1)
		}
		wg.Wait()
	}},
	{name: "many wait at once", run: func(f *fixture) {
		var wg sync.WaitGroup
		started := make(chan struct{}, 100)
		for range cap(started) {
			wg.Go(func() {
				started <- struct{}{}
				f.follow(1)
			})
		}
		for range cap(started) {
			<-started
		}
		f.happen(f.tenant, 0, 1)
		wg.Wait()
	}},
	{name: "waiting ends with the wait, and with the context", run: func(f *fixture) {
		begin := time.Now()
		got, err := f.store.ReadActivity(f.ctx, f.tenant, "", 10, 50*time.Millisecond)
		if took := time.Since(begin); err != nil || len(got) != 0 || took < 50*time.Millisecond {
			f.Errorf("%v, %v after %v", got, err, took)
		}
		ctx, cancel := context.WithCancel(f.ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := f.store.ReadActivity(ctx, f.tenant, "", 10, time.Hour)
			ended <- err
		}()
		cancel()
		if err := Receive(f, "the end of the waiting", ended); err == nil {
			f.Error("no error although the context ended")
		}
	}},
	{name: "the feed is capped", limits: registry.Limits{ActivityCap: 50}, run: func(f *fixture) {
		f.happen(f.tenant, 0, 1000)
		got := f.readActivity("", 1000)
		if n := len(got); n < 50 || n > 250 || got[n-1].Reason != "999" {
			f.Errorf("%d entries in a feed of about 50", n)
		}
		if behind := f.readActivity(got[0].ID, 1000); len(behind) != len(got)-1 {
			f.Errorf("%d behind the first of %d", len(behind), len(got))
		}
		if all := f.readActivity("1-1", 1000); len(all) != len(got) {
			f.Errorf("%d behind one that is long gone", len(all))
		}
	}},
	{name: "the feed is capped in bytes", limits: registry.Limits{ActivityBytes: 200_000}, run: func(f *fixture) {
		names := make([]string, 100)
		for i := range names {
			names[i] = strings.Repeat("n", 60)
		}
		for range 40 { // 10 MB in batches of 250 KB
			var batch []registry.Activity
			for i := range 40 {
				batch = append(batch, registry.Activity{
					Tenant: f.tenant, Type: registry.ActivityTools, Reason: strconv.Itoa(i), Tools: names,
				})
			}
			f.must(f.store.AppendActivity(f.ctx, batch))
		}
		if got := f.readActivity("", 1000); len(got) < 10 || len(got) > 60 || got[len(got)-1].Reason != "39" {
			f.Errorf("%d lines of 6 KB in a feed of about 200 KB", len(got))
		}
		f.happen(f.tenant, 0, 20_000) // short lines: the length of the current lines counts
		if got := f.readActivity("", 1000); len(got) < 300 {
			f.Errorf("%d short lines in a feed of about 200 KB", len(got))
		}
	}},
	{name: "a call is found while the feed has it", limits: registry.Limits{ActivityCap: 300}, run: func(f *fixture) {
		f.wantNotFound("c0")
		end := func(from, to int) {
			var batch []registry.Activity
			for i := from; i < to; i++ {
				call := f.record("c" + strconv.Itoa(i))
				call.State, call.Result = registry.StateSucceeded, &registry.Result{Success: true}
				batch = append(batch, registry.Activity{Tenant: f.tenant, Type: registry.ActivityCall, Call: &call})
			}
			f.must(f.store.AppendActivity(f.ctx, batch))
		}
		end(0, 5)
		end(5, 105)
		end(105, 290)
		for _, i := range []int{0, 4, 5, 21, 104, 105, 289} {
			id := "c" + strconv.Itoa(i)
			r, err := f.store.FindCall(f.ctx, f.tenant, id)
			if err != nil || r.CallID != id || r.State != registry.StateSucceeded {
				f.Errorf("%s: %+v, %v", id, r, err)
			}
		}
		f.wantNotFound("c290")
		if _, err := f.store.FindCall(f.ctx, f.tenant+"x", "c4"); !registry.IsCallNotFound(err) {
			f.Errorf("found by another tenant: %v", err)
		}
		for i := 290; i < 3000; i += 90 {
			end(i, i+90)
		}
		f.wantNotFound("c289")
		for _, a := range f.readActivity("", 1000) {
			if _, err := f.store.FindCall(f.ctx, f.tenant, a.Call.CallID); err != nil {
				f.Errorf("%s is in the feed and not found: %v", a.Call.CallID, err)
			}
		}
	}},
	{name: "an error in the feed is no longer than people read", run: func(f *fixture) {
		long := strings.Repeat("é", 50_000)
		failed, lost := f.record("c1"), f.record("c2")
		failed.State, failed.Result = registry.StateFailed, &registry.Result{Error: long}
		lost.State, lost.Err = registry.StateLost, registry.Errorf(registry.CodeLost, "%s", long)
		lost.Err.Violations = make([]registry.Violation, 1000)
		if err := f.store.AppendActivity(f.ctx, []registry.Activity{
			{Tenant: f.tenant, Type: registry.ActivityCall, Call: &failed},
			{Tenant: f.tenant, Type: registry.ActivityCall, Call: &lost},
		}); err != nil {
			f.Fatal(err)
		}
		got := f.readActivity("", 10)
		if len(got) != 2 {
			f.Fatalf("%d lines", len(got))
		}
		for _, text := range []string{got[0].Call.Result.Error, got[1].Call.Err.Message} {
			if len(text) > 1<<10 || !strings.HasPrefix(text, "éé") || !strings.HasSuffix(text, "é…") {
				f.Errorf("an error of %d bytes: …%q", len(text), text[len(text)-20:])
			}
		}
		if n := len(got[1].Call.Err.Violations); n != 0 {
			f.Errorf("%d violations", n)
		}
	}},
	{name: "tenants never see each other's feed", run: func(f *fixture) {
		f.happen(f.tenant+"x", 0, 5)
		f.happen(f.tenant, 7, 8)
		if got := f.activity("", 100) + f.lastActivity("", 100); got != "77" {
			f.Errorf("saw %s", got)
		}
	}},
	{name: "malformed places are refused", run: func(f *fixture) {
		f.happen(f.tenant, 0, 1)
		for _, id := range []string{"x", "1", "-", "+", "$", "0-0 ", "(0-0", "1-99999999999999999999", "1-1\n"} {
			f.wantCode(errOf(f.store.ReadActivity(f.ctx, f.tenant, id, 10, 0)), registry.CodeInvalidRequest)
			f.wantCode(errOf(f.store.LastActivity(f.ctx, f.tenant, id, 10)), registry.CodeInvalidRequest)
		}
	}},
}

// wantNotFound checks that the feed of the tenant has no line about the end of a call.
func (f *fixture) wantNotFound(id string) {
	f.Helper()
	f.wantNoCall(errOf(f.store.FindCall(f.ctx, f.tenant, id)))
}

// happen appends numbered entries to the feed of a tenant.
func (f *fixture) happen(tenant string, from, to int) {
	f.Helper()
	var all []registry.Activity
	for i := from; i < to; i++ {
		all = append(all, registry.Activity{Tenant: tenant, Type: registry.ActivityConnected, Reason: strconv.Itoa(i)})
	}
	f.must(f.store.AppendActivity(f.ctx, all))
}

func (f *fixture) readActivity(after string, limit int) []registry.Activity {
	f.Helper()
	page, err := f.store.ReadActivity(f.ctx, f.tenant, after, limit, 0)
	f.must(err)
	if limit > 0 && len(page) > limit {
		f.Fatalf("a page of %d, limit %d", len(page), limit)
	}
	return page
}

// activity renders the numbers of a page.
func (f *fixture) activity(after string, limit int) string {
	f.Helper()
	return strings.Join(reasons(f.readActivity(after, limit)), " ")
}

func (f *fixture) lastActivity(before string, limit int) string {
	f.Helper()
	page, err := f.store.LastActivity(f.ctx, f.tenant, before, limit)
	f.must(err)
	return strings.Join(reasons(page), " ")
}

// follow reads the feed until it has seen n entries, which must be numbered from zero.
func (f *fixture) follow(n int) {
	after := ""
	for seen := 0; seen < n; {
		page, err := f.store.ReadActivity(f.ctx, f.tenant, after, 5, testTimeout)
		if err != nil || len(page) == 0 {
			f.Errorf("after %d entries: %d more, %v", seen, len(page), err)
			return
		}
		for _, a := range page {
			if a.Reason != fmt.Sprint(seen) || a.Tenant != f.tenant {
				f.Errorf("entry %d: %+v", seen, a)
				return
			}
			seen++
		}
		after = page[len(page)-1].ID
	}
}

func reasons(all []registry.Activity) []string {
	var numbers []string
	for _, a := range all {
		numbers = append(numbers, a.Reason)
	}
	return numbers
}
