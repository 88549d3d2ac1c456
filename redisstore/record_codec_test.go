package redisstore

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// fullRecord returns a record in which no field is zero, whatever fields there are.
func fullRecord(t *testing.T) registry.Record {
	t.Helper()
	r := registry.Record{
		TimeoutMS: 1234, HoldMS: 5678, Late: true, Deadline: time.UnixMilli(1_700_000_000_123).UTC(),
		Timeline: []registry.Step{
			{State: registry.StateAccepted, At: time.UnixMicro(1_700_000_000_000_001).UTC()},
			{State: registry.StateFailed, At: time.UnixMicro(1_700_000_000_000_002).UTC()},
		},
		Result: &registry.Result{
			Output: "x", Structured: registry.MustJSON(`{"n":12345678901234567890,"a":[]}`), Error: "<&>",
			Parts: []registry.Part{
				{Type: registry.PartImage, MIMEType: "image/png", Name: "a", Data: []byte("\x00\xff<"), Size: 3},
				{Type: registry.PartFile, MIMEType: "video/mp4", URL: "https://x/<&>", Size: 1 << 40},
			},
		},
		Err:   registry.Errorf(registry.CodeLost, "gone").With(registry.DispatchedYes),
		Group: &registry.GroupNote{Mode: registry.GroupAll, Counts: &registry.GroupCounts{Devices: 3, Succeeded: 2}},
	}
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || field.Type.Kind() != reflect.String {
			continue
		}
		v.Field(i).SetString("value of " + field.Name)
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.IsExported() && field.Tag.Get("json") != "-" && v.Field(i).IsZero() {
			t.Fatalf("this test does not fill %s", field.Name)
		}
	}
	return r
}

// TestNoFieldOfARecordIsForgotten fails when a field is added to Record that the store does not keep.
func TestNoFieldOfARecordIsForgotten(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	kept := fullRecord(t)
	if err := s.KeepCalls(ctx, []registry.Record{kept}); err != nil {
		t.Fatal(err)
	}
	if got := must[registry.Record](t)(s.ReadCall(ctx, kept.Tenant, kept.CallID)); !reflect.DeepEqual(got, kept) {
		t.Errorf("kept %+v\nread %+v", kept, got)
	}

	r := fullRecord(t)
	r.CallID = "created"
	stored, _, err := s.CreateCall(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	r.State, r.Dispatched, r.Late, r.Result, r.Err = registry.StateAccepted, registry.DispatchedNo, false, nil, nil
	r.Deadline, r.Timeline = stored.Deadline, stored.Timeline
	if !reflect.DeepEqual(stored, r) {
		t.Errorf("created %+v\nwant    %+v", stored, r)
	}
}

func TestParseRecordRefusesGarbage(t *testing.T) {
	good := map[string]string{
		fieldRest: `{"call_id":"c"}`, fieldState: "accepted", fieldTimeline: " accepted=1 routed=2",
	}
	r, err := parseRecord(good)
	if err != nil || r.CallID != "c" || len(r.Timeline) != 2 || !r.Deadline.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
	for field, text := range map[string]string{
		fieldRest: `{`, fieldTimeline: "accepted", fieldResult: "x", fieldError: "[]",
	} {
		bad := map[string]string{fieldRest: `{}`}
		bad[field] = text
		if r, err := parseRecord(bad); err == nil {
			t.Errorf("%s %q was read as %+v", field, text, r)
		}
	}
}

func TestAnEventChangesItsOwnFieldsOnly(t *testing.T) {
	for _, c := range []struct {
		event  registry.Event
		change registry.Change
		want   []any
	}{
		{registry.EventRun, registry.Change{}, nil},
		{registry.EventDeliver, registry.Change{Owner: "a"}, []any{fieldOwner, "a"}},
		{registry.EventLose, registry.Change{Err: registry.Errorf(registry.CodeLost, "<x>")},
			[]any{fieldError, `{"code":"lost","message":"<x>"}`}},
		{registry.EventFail, registry.Change{Result: &registry.Result{Error: "no"}},
			[]any{fieldResult, `{"success":false,"output":"","error":"no"}`, fieldError, ""}},
	} {
		table, fields, err := moves(c.event, c.change)
		if err != nil || !reflect.DeepEqual(fields, c.want) {
			t.Errorf("%s: fields %q, %v, want %q", c.event, fields, err, c.want)
		}
		if want := 5 * len(registry.Sources(c.event)); len(table) != want {
			t.Errorf("%s: a table of %d, want %d", c.event, len(table), want)
		}
	}
}
