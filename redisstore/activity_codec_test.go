package redisstore

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// fillText sets every text, number, flag and time of v, which must be addressable, except the named fields.
func fillText(t *testing.T, v reflect.Value, skip ...string) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !f.CanSet() || contains(skip, name) {
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

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// Every field there is must come out as encoding/json writes it: one that is added and forgotten fails here.
func TestActivityIsWrittenAsJSONWouldBe(t *testing.T) {
	var a registry.Activity
	fillText(t, reflect.ValueOf(&a).Elem())
	full := registry.Record{Result: &registry.Result{Error: "e", Success: true, Output: "secret", Structured: []byte(`{}`)}}
	fillText(t, reflect.ValueOf(&full).Elem(), "IdempotencyKey", "RequestDigest")
	full.Timeline = []registry.Step{{State: registry.StateAccepted, At: a.At}, {State: registry.StateSucceeded, At: a.At.Add(time.Millisecond)}}
	keyed := full
	keyed.IdempotencyKey, keyed.RequestDigest = "k", "d"
	failed := full
	failed.Result, failed.Err = nil, registry.Errorf(registry.CodeTimeout, "late")
	for name, call := range map[string]*registry.Record{"none": nil, "empty": {}, "full": &full, "keyed": &keyed, "failed": &failed} {
		a.Call = call
		got, err := appendActivity(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		want := a
		if call != nil {
			summary := call.Summary()
			want.Call = &summary
		}
		text, err := encodeJSON(want)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(text) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, text)
		}
		if !json.Valid(got) {
			t.Errorf("%s is not JSON", name)
		}
	}
}

func BenchmarkActivity(b *testing.B) {
	call := registry.NewRecord(registry.NewCallID(), "default", "read_battery", json.RawMessage(`{}`))
	call.SessionID, call.Pod, call.Owner, call.ArgsDigest = "phone-1", "pod-1", "pod-2", "0123456789abcdef"
	call.Apply(registry.EventRoute, registry.Change{}, time.Now())
	call.Apply(registry.EventSucceed, registry.Change{Result: &registry.Result{Success: true, Output: "83"}}, time.Now())
	a := registry.Activity{Type: registry.ActivityCall, At: time.Now(), Pod: "pod-1", SessionID: "phone-1", Call: &call}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := appendActivity(make([]byte, 0, activityOverhead), a); err != nil {
			b.Fatal(err)
		}
	}
}
