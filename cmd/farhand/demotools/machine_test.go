package demotools

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// writeDevices writes files as Linux shows devices, and returns their folder.
func writeDevices(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBatteries(t *testing.T) {
	got := batteries(writeDevices(t, map[string]string{
		"power_supply/BAT0/capacity": "87\n", "power_supply/BAT0/status": "Discharging\n",
		"power_supply/BAT1/capacity": "broken", "power_supply/AC/online": "1",
	}))
	if len(got) != 1 || got[0] != (batteryReading{Name: "BAT0", Percent: 87, Status: "Discharging"}) {
		t.Errorf("%+v", got)
	}
}

func TestTemperatures(t *testing.T) {
	files := map[string]string{"thermal/thermal_zone0/temp": "41500\n", "thermal/thermal_zone0/type": "soc\n"}
	if got := temperatures(writeDevices(t, files)); !slices.Equal(got, []temperatureReading{{"soc", 41.5}}) {
		t.Errorf("zones: %+v", got)
	}
	for name, text := range map[string]string{
		"name": "coretemp\n", "temp1_input": "52000\n", "temp1_label": "Core 0\n", "temp2_input": "33000",
		"temp3_input": "broken",
	} {
		files["hwmon/hwmon0/"+name] = text
	}
	want := []temperatureReading{{"coretemp_core_0", 52}, {"coretemp", 33}}
	if got := temperatures(writeDevices(t, files)); !slices.Equal(got, want) {
		t.Errorf("sensors: %+v, want %+v", got, want)
	}
}
