package redisstore

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// fillText sets every text, number, flag and time of v, which must be addressable, except the named fields.
func fillText(t *testing.T, v reflect.Value, skip ...string) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !f.CanSet() || slices.Contains(skip, name) {
			continue
		}
		switch x := f.Addr().Interface().(type) {
		case *time.Time:
			*x = time.Date(2026, 11, 20, 12, 0, i, i*1000, time.UTC)
		case *bool:
			*x = true
		case *int64:
			*x = int64(i + 1)
		default:
			if f.Kind() == reflect.String {
				f.SetString(name + ` "<é>"`)
			}
		}
	}
}

// writtenActivity returns a line with every field set, and records to go with it.
func writtenActivity(t *testing.T) (registry.Activity, map[string]*registry.Record) {
	t.Helper()
	var a registry.Activity
	fillText(t, reflect.ValueOf(&a).Elem())
	full := registry.Record{Result: &registry.Result{
		Error: "e", Success: true, Output: "secret", Structured: registry.MustJSON(`{}`),
	}}
	fillText(t, reflect.ValueOf(&full).Elem(), "IdempotencyKey", "RequestDigest", "Deadline", "Approval", "HoldMS")
	full.Timeline = []registry.Step{
		{State: registry.StateAccepted, At: a.At}, {State: registry.StateTimedOut, At: a.At.Add(time.Millisecond)},
		{State: registry.StateSucceeded, At: a.At.Add(-time.Nanosecond)}, // clocks are set
	}
	calls := map[string]*registry.Record{"none": nil, "empty": {}, "full": &full}
	for name, change := range map[string]func(r *registry.Record){
		"plain":    func(r *registry.Record) { r.Mode, r.Result = registry.ModeSync, nil },
		"wordy":    func(r *registry.Record) { r.Result = &registry.Result{Error: strings.Repeat("long ", 1000)} },
		"async":    func(r *registry.Record) { r.Mode = "async" },
		"approved": func(r *registry.Record) { r.Approval = "a" },
		"held":     func(r *registry.Record) { r.HoldMS = 1 },
		"keyed":    func(r *registry.Record) { r.IdempotencyKey, r.RequestDigest = "k", "d" },
		"failed":   func(r *registry.Record) { r.Result, r.Err = nil, registry.Errorf(registry.CodeTimeout, "late") },
		"bounded":  func(r *registry.Record) { r.Deadline = a.At },
		"modeless": func(r *registry.Record) { r.Mode = "" },
		"untimed":  func(r *registry.Record) { r.Timeline = nil },
		"stepless": func(r *registry.Record) { r.Timeline = []registry.Step{} },
		"foreign":  func(r *registry.Record) { r.Tenant = "other" },
		"moved":    func(r *registry.Record) { r.SessionID = "" },
		"replaced": func(r *registry.Record) { r.DeviceID = "other" },
		"handed":   func(r *registry.Record) { r.Pod = "other" },
		"odd":      func(r *registry.Record) { r.Timeline = []registry.Step{{State: `a="b c`, At: a.At}} },
		"ageless":  func(r *registry.Record) { r.Timeline = []registry.Step{{State: registry.StateAccepted}} },
		"local": func(r *registry.Record) {
			r.Timeline = []registry.Step{{State: registry.StateAccepted, At: a.At.In(time.FixedZone("", 3600))}}
		},
	} {
		call := full
		change(&call)
		calls[name] = &call
	}
	return a, calls
}

// Every field there is must be read again as encoding/json would have kept it: one that is added and forgotten fails
// here.
func TestActivityIsReadAsItWasWritten(t *testing.T) {
	a, calls := writtenActivity(t)
	ordinary := []string{"full", "plain", "wordy", "async"}
	for name, call := range calls {
		a.Call = call
		text, err := appendLine(nil, &a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseActivity(text, a.ID, a.Tenant)
		if err != nil {
			t.Errorf("%s: %s: %v", name, text, err)
			continue
		}
		if want := asJSON(t, a); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s\n got %+v\nwant %+v", name, text, got, want)
		}
		if short := bytes.Contains(text, []byte(`"steps":`)); short != slices.Contains(ordinary, name) {
			t.Errorf("%s is written as %s", name, text)
		}
	}
}

// asJSON returns what is left of a line when encoding/json writes and reads it.
func asJSON(t *testing.T, a registry.Activity) registry.Activity {
	t.Helper()
	if a.Call != nil {
		call := a.Call.Summary()
		a.Call = &call
	}
	kept := registry.Activity{ID: a.ID, Tenant: a.Tenant}
	if err := json.Unmarshal(must[[]byte](t)(strictjson.Encode(a)), &kept); err != nil {
		t.Fatal(err)
	}
	if kept.Call != nil {
		kept.Call.Brief = kept.Call.Result != nil // no line says so: it is true of all results in the feed
	}
	return kept
}

// While pods of two versions run, each reads what the other wrote: the older one knows the JSON of an activity only.
func TestActivityOfAnotherVersion(t *testing.T) {
	const old = `{"type":"call.finished","at":"2026-11-20T12:00:00.5Z","pod":"p","session_id":"s","device_id":"d",` +
		`"call":{"call_id":"c","tenant":"acme","tool":"read_battery","session_id":"s","device_id":"d",` +
		`"args_digest":"44136f","mode":"sync","pod":"p",` +
		`"state":"succeeded","dispatched":"yes","timeline":[{"state":"accepted","at":"2026-11-20T12:00:00.25Z"},` +
		`{"state":"routed","at":"2026-11-20T12:00:00.375Z"},{"state":"succeeded","at":"2026-11-20T12:00:00.5Z"}],` +
		`"timeout_ms":30000,` +
		`"deadline":"0001-01-01T00:00:00Z","result":{"success":true,"output":""}}}`
	at := time.Date(2026, 11, 20, 12, 0, 0, 250_000_000, time.UTC)
	want := registry.Activity{
		ID: "1-0", Tenant: tenant, Type: registry.ActivityCall, At: at.Add(250 * time.Millisecond), Pod: "p",
		SessionID: "s", DeviceID: "d",
		Call: &registry.Record{
			CallID: "c", Tenant: tenant, Tool: "read_battery", SessionID: "s", DeviceID: "d", ArgsDigest: "44136f",
			Mode: registry.ModeSync,
			Pod:  "p", State: registry.StateSucceeded, Dispatched: registry.DispatchedYes, TimeoutMS: 30_000,
			Result: &registry.Result{Success: true}, Brief: true,
			Timeline: []registry.Step{
				{State: registry.StateAccepted, At: at},
				{State: registry.StateRouted, At: at.Add(125 * time.Millisecond)},
				{State: registry.StateSucceeded, At: at.Add(250 * time.Millisecond)},
			},
		},
	}
	if got := must[registry.Activity](t)(parseActivity([]byte(old), "1-0", tenant)); !reflect.DeepEqual(got, want) {
		t.Errorf("an old line is read as %+v, call %+v", got, *got.Call)
	}

	text := must[[]byte](t)(appendLine(nil, &want))
	if len(text) > 2*len(old)/3 {
		t.Errorf("%d bytes instead of %d: %s", len(text), len(old), text)
	}
	older := registry.Activity{ID: want.ID, Tenant: tenant}
	if err := json.Unmarshal(text, &older); err != nil {
		t.Fatal(err)
	}
	call := *want.Call
	call.Tenant, call.SessionID, call.DeviceID, call.Pod, call.Mode, call.Timeline = "", "", "", "", "", nil
	call.Brief = false
	want.Call = &call
	if !reflect.DeepEqual(older, want) {
		t.Errorf("an older pod reads %+v, call %+v", older, *older.Call)
	}
}

func TestParseActivityRefusesGarbage(t *testing.T) {
	for _, text := range []string{
		``, `{`, `{"call":{},"steps":"accepted"}`, `{"call":{},"steps":"accepted=x"}`, `{"steps":1}`,
	} {
		if a, err := parseActivity([]byte(text), "1-0", tenant); err == nil {
			t.Errorf("%s was read as %+v", text, a)
		}
	}
}

// BenchmarkActivity encodes one line of an ordinary call.
func BenchmarkActivity(b *testing.B) {
	a := []registry.Activity{benchActivity()}
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		if _, err := encodeFeeds(&buf, a); err != nil {
			b.Fatal(err)
		}
	}
}
