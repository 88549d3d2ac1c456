package registry

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestUsageAddsUp(t *testing.T) {
	var one Usage
	fields := reflect.ValueOf(&one).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetInt(int64(i + 1))
	}
	sum := reflect.ValueOf(one.Plus(one))
	for i := range sum.NumField() {
		if got := sum.Field(i).Int(); got != int64(2*(i+1)) {
			t.Errorf("%s: %d", sum.Type().Field(i).Name, got)
		}
	}
}

func TestRowsOfUsage(t *testing.T) {
	r := UsageRow{User: strings.Repeat("ä", 200), Tool: strings.Repeat("t", 200)}
	if r.Trim(); len(r.User) > maxUsageName || len(r.Tool) > maxUsageName || !strings.HasPrefix(r.User, "ä") {
		t.Errorf("%d and %d bytes", len(r.User), len(r.Tool))
	}
	west := time.FixedZone("west", -8*3600)
	if day := UsageDay(time.Date(2026, 2, 28, 20, 0, 0, 0, west)); day != "2026-03-01" {
		t.Errorf("a day is in UTC: %s", day)
	}
	for _, name := range []string{UsageOther, UsageUnknown, UsageModels} {
		if ValidToolName(name) {
			t.Errorf("a tool may be called %s", name)
		}
	}
}
