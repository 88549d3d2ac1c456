package registrytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// wide are bounds that no test reaches.
var wide = registry.QueueBounds{
	Device: registry.QueueBound{Calls: 100, Bytes: 1 << 20}, Identity: registry.QueueBound{Calls: 100, Bytes: 1 << 20},
	Tenant: registry.QueueBound{Calls: 100, Bytes: 1 << 20},
}

// enqueue adds a call and returns its place.
func (f *fixture) enqueue(id, device, identity, request string, b registry.QueueBounds) (int, error) {
	place, _, err := f.store.Enqueue(f.ctx, registry.QueuedCall{
		Tenant: f.tenant, CallID: f.id + id, Device: device, Identity: identity, Request: []byte(request),
		Shared: identity != "owner",
	}, time.Hour, b)
	return place, err
}

var queueTests = []subtest{
	{name: "a queue keeps the order, and a call its place", run: func(f *fixture) {
		for i := range 5 {
			place, err := f.enqueue(fmt.Sprint(i), "phone 1/ü", "ann\nben", "request", wide)
			f.must(err)
			again, err := f.enqueue(fmt.Sprint(i), "phone 1/ü", "ann\nben", "request", wide)
			f.must(err)
			if place != i+1 || again != place {
				f.Errorf("call %d has the places %d and %d", i, place, again)
			}
		}
		removed, err := f.store.Dequeue(f.ctx, f.tenant, "phone 1/ü", f.id+"1")
		twice, _ := f.store.Dequeue(f.ctx, f.tenant, "phone 1/ü", f.id+"1")
		if f.must(err); !removed || twice {
			f.Errorf("removed: %v, then %v", removed, twice)
		}
		head, ok, err := f.store.QueueHead(f.ctx, f.tenant, "phone 1/ü")
		if f.must(err); !ok || head.CallID != f.id+"0" || string(head.Request) != "request" ||
			head.Device != "phone 1/ü" || head.Identity != "ann\nben" || head.Expires.Sub(head.Since) != time.Hour {
			f.Errorf("head: %v %+v", ok, head)
		}
		ids, err := f.store.QueueOf(f.ctx, f.tenant, "phone 1/ü", 3)
		if f.must(err); !slices.Equal(ids, []string{f.id + "0", f.id + "2", f.id + "3"}) {
			f.Errorf("listed: %v", ids)
		}
		third, err := f.store.QueuePosition(f.ctx, f.tenant, "phone 1/ü", f.id+"3")
		f.must(err)
		none, err := f.store.QueuePosition(f.ctx, f.tenant, "phone 1/ü", f.id+"1")
		if f.must(err); third != 3 || none != 0 {
			f.Errorf("places %d and %d", third, none)
		}
		waiting, err := f.store.Waiting(f.ctx, f.tenant, "other", "phone 1/ü")
		if f.must(err); waiting[0] || !waiting[1] {
			f.Errorf("waiting: %v", waiting)
		}
		stats, err := f.store.QueueStats(f.ctx)
		if f.must(err); stats[f.tenant].Calls != 4 || stats[f.tenant].Bytes != 4*int64(len("request")) {
			f.Errorf("stats: %+v", stats[f.tenant])
		}
	}},
	{name: "each bound holds, and what leaves makes room", run: func(f *fixture) {
		small := wide
		small.Device.Calls, small.Identity.Bytes, small.Tenant.Calls = 2, 10, 4
		for id, c := range map[string]struct{ device, identity, request string }{
			"a": {"one", "ann", "12345"}, "b": {"one", "ben", "1"}, "c": {"two", "ann", "12345"}, "d": {"two", "", "1"},
		} {
			if _, err := f.enqueue(id, c.device, c.identity, c.request, small); err != nil {
				f.Errorf("%s: %v", id, err)
			}
		}
		for bound, c := range map[string]struct{ device, identity string }{
			"device": {"one", "eve"}, "identity": {"three", "ann"}, "tenant": {"three", "eve"},
		} {
			_, err := f.enqueue("e", c.device, c.identity, "1", small)
			if f.wantCode(err, registry.CodeBusy); registry.AsError(err).Rule != bound {
				f.Errorf("%v instead of the bound of the %s", err, bound)
			}
		}
		f.must(errOf(f.store.Dequeue(f.ctx, f.tenant, "one", f.id+"a")))
		f.must(errOf(f.enqueue("f", "one", "ann", "12345", small)))
		erased, err := f.store.EraseQueued(f.ctx, f.tenant, "ann")
		slices.Sort(erased)
		if f.must(err); !slices.Equal(erased, []string{f.id + "c", f.id + "f"}) {
			f.Errorf("erased %v", erased)
		}
		f.must(errOf(f.enqueue("g", "one", "ann", "1234567890", small)))
	}},
	{name: "an identity has half of a device's queue, and always one call", run: func(f *fixture) {
		small := wide
		small.Device = registry.QueueBound{Calls: 5, Bytes: 100}
		refused := func(bound, device, identity string, bytes int) {
			_, err := f.enqueue("more", device, identity, strings.Repeat("x", bytes), small)
			if f.wantCode(err, registry.CodeBusy); registry.AsError(err).Rule != bound {
				f.Errorf("%s at %s: %v instead of the bound %q", identity, device, err, bound)
			}
		}
		for i := range 2 {
			f.must(errOf(f.enqueue(fmt.Sprint("e", i), "phone", "eve of 1", "{}", small)))
		}
		refused("share", "phone", "eve of 1", 2)
		f.must(errOf(f.enqueue("other", "pad", "eve of 1", "{}", small)))
		for i := range 2 {
			f.must(errOf(f.enqueue(fmt.Sprint("a", i), "phone", "ann", "{}", small)))
		}
		f.must(errOf(f.store.Dequeue(f.ctx, f.tenant, "phone", f.id+"e0")))
		f.must(errOf(f.enqueue("again", "phone", "eve of 1", "{}", small)))
		f.must(errOf(f.enqueue("none", "phone", "", "{}", small)))
		refused("device", "phone", "ben", 2)

		f.must(errOf(f.enqueue("long", "car", "eve of 1", strings.Repeat("x", 60), small)))
		refused("share", "car", "eve of 1", 1)
		f.must(errOf(f.enqueue("short", "car", "ann", "{}", small)))
		for _, identity := range []string{"", "owner"} { // a shared token, and the device's own user, have no share
			for i := range 2 {
				f.must(errOf(f.enqueue(fmt.Sprint("all", i), "tv"+identity, identity, strings.Repeat("x", 40), small)))
			}
		}
	}},
	{name: "an expired call is due, and again later", run: func(f *fixture) {
		c := registry.QueuedCall{Tenant: f.tenant, CallID: f.id, Device: "phone", Request: []byte("{}")}
		_, expires, err := f.store.Enqueue(f.ctx, c, 50*time.Millisecond, wide)
		f.must(err)
		f.must(errOf(f.enqueue("later", "phone", "", "{}", wide)))
		due := func() (found []registry.QueuedCall) {
			all, err := f.store.DueQueued(f.ctx, 1000, time.Millisecond)
			f.must(err)
			for _, c := range all {
				if c.Tenant == f.tenant {
					found = append(found, c)
				}
			}
			return found
		}
		for range 2 {
			Eventually(f.T, "the call is due", func() bool {
				found := due()
				return len(found) == 1 && found[0].CallID == f.id && found[0].Device == "phone" &&
					found[0].Expires.Equal(expires) && len(found[0].Request) == 0
			})
		}
		f.must(errOf(f.store.Dequeue(f.ctx, f.tenant, "phone", f.id)))
		if left := due(); len(left) != 0 {
			f.Errorf("left: %+v", left)
		}
	}},
	{name: "a scan finds the last call of each device", run: func(f *fixture) {
		var want []string
		for i := range 30 {
			f.must(errOf(f.enqueue(fmt.Sprint("first", i), fmt.Sprint("phone", i), "ann", "{}", wide)))
			id := fmt.Sprint("last", i)
			f.must(errOf(f.enqueue(id, fmt.Sprint("phone", i), "ann", "{}", wide)))
			want = append(want, f.id+id)
		}
		var found []string
		for cursor, pages := "", 0; ; pages++ {
			page, next, err := f.store.ScanQueued(f.ctx, cursor, 7)
			f.must(err)
			for _, c := range page {
				if c.Tenant == f.tenant && slices.Contains(want, c.CallID) {
					found = append(found, c.CallID)
				}
				if len(c.Request) > 0 || c.Since.IsZero() || c.Device == "" {
					f.Errorf("found %+v", c)
				}
			}
			if cursor = next; cursor == "" {
				break
			}
			if pages > 1000 {
				f.Fatal("the scan does not end")
			}
		}
		slices.Sort(found)
		slices.Sort(want)
		if found = slices.Compact(found); !slices.Equal(found, want) {
			f.Errorf("found %v", found)
		}
	}},
	{name: "a queued record begins once, returns, and expires by its time in the queue", run: func(f *fixture) {
		r := registry.NewRecord(f.id, f.tenant, "camera", nil)
		r.State, r.TimeoutMS, r.HoldMS, r.Queue = registry.StateQueued, 60_000, 3_600_000, "phone"
		stored, created, err := f.store.CreateCall(f.ctx, r)
		f.must(err)
		if wait := stored.Deadline.Sub(stored.Timeline[0].At).Round(time.Second); !created || wait != time.Hour ||
			stored.State != registry.StateQueued || stored.Queue != "phone" {
			f.Fatalf("created %v: %+v", created, stored)
		}
		if moved, err := f.store.MoveCall(f.ctx, f.tenant, f.id, registry.EventDeliver,
			registry.Change{}); err != nil ||
			moved.Applied {
			f.Errorf("delivered from the queue: %+v %v", moved, err)
		}
		for range registry.MaxSteps {
			got, begun, err := f.store.BeginCall(f.ctx, f.tenant, f.id, "pod-b", time.Minute)
			if f.must(err); !begun || got.State != registry.StateAccepted || got.Pod != "pod-b" {
				f.Errorf("begun %v: %+v", begun, got)
			}
			if _, again, err := f.store.BeginCall(f.ctx, f.tenant, f.id, "pod-c", time.Minute); err != nil || again {
				f.Errorf("begun twice: %v %v", again, err)
			}
			until := stored.Deadline
			moved, err := f.store.MoveCall(f.ctx, f.tenant, f.id, registry.EventQueue, registry.Change{Until: until})
			if f.must(err); !moved.Applied || moved.Record.State != registry.StateQueued ||
				!moved.Record.Deadline.Equal(until) {
				f.Errorf("returned: %+v", moved)
			}
			if steps := moved.Record.Timeline; len(steps) > 1+registry.MaxSteps ||
				!slices.Equal(steps[:1], stored.Timeline) ||
				steps[len(steps)-2].State != registry.StateAccepted ||
				steps[len(steps)-1].State != registry.StateQueued {
				f.Fatalf("timeline of %d steps: %+v", len(steps), steps)
			}
		}
		events, err := f.store.CallEvents(f.ctx, f.tenant, f.id, "", 10)
		if f.must(err); len(events) != 1 || events[0].State != registry.StateAccepted {
			f.Errorf("events: %+v", events)
		}
	}},
}

// knownDevice returns a device to remember.
func (f *fixture) knownDevice(id string, change func(*registry.Session)) registry.DeviceMemory {
	s := registry.Session{Key: f.key("of-" + id), DeviceID: id, Labels: map[string]string{"site": "vienna"}}
	if change != nil {
		change(&s)
	}
	return registry.DeviceMemory{KnownDevice: registry.KnownDevice{
		Session: s, Tools: []registry.ToolSpec{tool("camera", "x"), tool("torch", "x")}, LastSeen: time.Now(),
	}, Life: time.Hour}
}

// knows returns the ids of the known devices that match a target.
func (f *fixture) knows(t registry.Target) (ids []string) {
	f.Helper()
	for skip := 0; ; {
		found, next, err := f.store.KnownDevices(f.ctx, registry.KnownQuery{
			Tenant: f.tenant, Target: t, Skip: skip, Limit: 2,
		})
		f.must(err)
		for _, d := range found {
			if len(d.Tools) != 2 || d.Tools[0].Name != "camera" || d.Tools[0].Hash() != tool("camera", "x").Hash() {
				f.Errorf("tools of %s: %+v", d.Session.DeviceID, d.Tools)
			}
			ids = append(ids, d.Session.DeviceID)
		}
		if skip = next; next == 0 {
			slices.Sort(ids)
			return ids
		}
	}
}

var sleepingTests = []subtest{
	{name: "a viewer's device is found among many of another user", run: func(f *fixture) {
		own := func(s *registry.Session) { s.UserID = "ann" }
		mine, bound, nobodys := f.knownDevice("mine", own), f.knownDevice("lamp", own), f.knownDevice("nobody's", nil)
		bound.Session.Bound, mine.Life, bound.Life = true, time.Hour-time.Second, time.Hour-time.Second
		devices := []registry.DeviceMemory{mine, bound, nobodys}
		for i := range 120 {
			id := fmt.Sprint("eve", i)
			if i%2 == 0 {
				id = "lamp" // each of another user
			}
			user := fmt.Sprint("eve", i%100)
			devices = append(devices, f.knownDevice(id, func(s *registry.Session) { s.UserID = user }))
		}
		f.must(f.store.RememberDevices(f.ctx, devices))
		site := map[string]string{"site": "vienna"}
		for _, test := range []struct {
			target registry.Target
			want   []string
		}{
			{registry.Target{Labels: site, Viewer: "ann"}, []string{"lamp", "mine", "nobody's"}},
			{registry.Target{Viewer: "ann"}, []string{"lamp", "mine", "nobody's"}},
			{registry.Target{Labels: site, Viewer: registry.NoUser}, []string{"nobody's"}},
			{registry.Target{DeviceID: "lamp", Bound: true}, []string{"lamp"}},
			{registry.Target{DeviceID: "lamp", Viewer: "ann"}, []string{"lamp"}},
		} {
			if got := f.knows(test.target); !slices.Equal(got, test.want) {
				f.Errorf("%+v: %v, want %v", test.target, got, test.want)
			}
			first, _, err := f.store.KnownDevices(f.ctx, registry.KnownQuery{
				Tenant: f.tenant, Target: test.target, Limit: 1,
			})
			if f.must(err); len(first) != 1 {
				f.Errorf("%+v: a page of one device has %d", test.target, len(first))
			}
		}
	}},
	{name: "known devices are found in each way, until they are forgotten", run: func(f *fixture) {
		ann := func(s *registry.Session) { s.UserID, s.Bound = "ann", true }
		f.must(f.store.RememberDevices(f.ctx, []registry.DeviceMemory{
			f.knownDevice("a", ann), f.knownDevice("b", ann), f.knownDevice("c", nil),
			f.knownDevice("d", func(s *registry.Session) { s.UserID, s.Labels = "ben", nil }),
		}))
		moved := f.knownDevice("b", ann)
		moved.Session.Labels = map[string]string{"site": "graz"}
		f.must(f.store.RememberDevices(f.ctx, []registry.DeviceMemory{moved}))
		for _, c := range []struct {
			target registry.Target
			want   []string
		}{
			{registry.Target{}, []string{"a", "b", "c", "d"}},
			{registry.Target{DeviceID: "a"}, []string{"a"}},
			{registry.Target{SessionID: "of-c"}, []string{"c"}},
			{registry.Target{UserID: "ann"}, []string{"a", "b"}},
			{registry.Target{Labels: map[string]string{"site": "vienna"}}, []string{"a", "c"}},
			{registry.Target{Labels: map[string]string{"site": "graz"}}, []string{"b"}},
			{registry.Target{Viewer: "ben"}, []string{"c", "d"}},
			{registry.Target{DeviceID: "a", Viewer: "ben"}, nil},
		} {
			if got := f.knows(c.target); !slices.Equal(got, c.want) {
				f.Errorf("%+v: %v", c.target, got)
			}
		}
		f.must(f.store.ForgetDevices(f.ctx, f.tenant, "ann", "d"))
		if got := f.knows(registry.Target{}); !slices.Equal(got, []string{"c"}) {
			f.Errorf("left: %v", got)
		}
	}},
	{name: "a device that chose its id is not the one of a credential, nor another user's", run: func(f *fixture) {
		f.must(f.store.RememberDevices(f.ctx, []registry.DeviceMemory{
			f.knownDevice("cam", func(s *registry.Session) { s.Bound, s.UserID = true, "ann" }),
			f.knownDevice("cam", func(s *registry.Session) { s.UserID = "ben" }), f.knownDevice("cam", nil),
		}))
		if got := f.knows(registry.Target{DeviceID: "cam"}); len(got) != 3 {
			f.Errorf("known: %v", got)
		}
		anns := registry.Session{DeviceID: "cam", UserID: "ann", Bound: true}
		f.must(f.store.ForgetDevice(f.ctx, f.tenant, anns.DeviceKey(), "unknown"))
		for viewer, want := range map[string]int{"ann": 1, "ben": 2} {
			if got := f.knows(registry.Target{DeviceID: "cam", Viewer: viewer}); len(got) != want {
				f.Errorf("%s knows %d after ann's was forgotten", viewer, len(got))
			}
		}
	}},
}
