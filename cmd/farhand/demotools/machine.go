package demotools

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// devices is where Linux shows temperature sensors and batteries. Other systems have no such folder.
const devices = "/sys/class"

// facts are what the operating system reports about this machine. What it does not report is zero or nil.
type facts struct {
	platform, version, kernel string
	uptime                    time.Duration
	load                      *loadReading
	memory                    *memoryReading
}

type machineInfo struct {
	Hostname      string `json:"hostname"`
	OS            string `json:"os"`
	Platform      string `json:"platform,omitempty"`
	Version       string `json:"version,omitempty"`
	Kernel        string `json:"kernel,omitempty"`
	Arch          string `json:"arch"`
	CPUs          int    `json:"cpus"`
	MemoryBytes   uint64 `json:"memory_bytes,omitempty"`
	UptimeSeconds uint64 `json:"uptime_seconds,omitempty"`
}

func deviceInfo(context.Context, struct{}) (any, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	f := readFacts()
	info := machineInfo{
		Hostname: hostname, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Platform: f.platform, Version: f.version, Kernel: f.kernel, UptimeSeconds: uint64(f.uptime / time.Second),
	}
	if f.memory != nil {
		info.MemoryBytes = f.memory.Total
	}
	return info, nil
}

type reading struct {
	Load        *loadReading         `json:"load,omitempty"`
	Memory      *memoryReading       `json:"memory,omitempty"`
	Temperature []temperatureReading `json:"temperature,omitempty"`
	Battery     []batteryReading     `json:"battery,omitempty"`
	Absent      []string             `json:"absent,omitempty"` // what this machine does not have
	ReadAt      time.Time            `json:"read_at"`
}

type loadReading struct {
	One     float64 `json:"one_minute"`
	Five    float64 `json:"five_minutes"`
	Fifteen float64 `json:"fifteen_minutes"`
}

type memoryReading struct {
	Total     uint64 `json:"total_bytes"`
	Available uint64 `json:"available_bytes"`
}

type temperatureReading struct {
	Sensor  string  `json:"sensor"`
	Celsius float64 `json:"celsius"`
}

type batteryReading struct {
	Name    string `json:"name"`
	Percent int    `json:"percent"`
	Status  string `json:"status"`
}

func readSensors(_ context.Context, args struct{ Type string }) (any, error) {
	f, r := readFacts(), reading{ReadAt: time.Now().UTC()}
	for _, s := range []struct {
		name string
		read func() bool
	}{
		{"load", func() bool { r.Load = f.load; return r.Load != nil }},
		{"memory", func() bool { r.Memory = f.memory; return r.Memory != nil }},
		{"temperature", func() bool { r.Temperature = temperatures(devices); return len(r.Temperature) > 0 }},
		{"battery", func() bool { r.Battery = batteries(devices); return len(r.Battery) > 0 }},
	} {
		if (args.Type == "" || args.Type == s.name) && !s.read() {
			r.Absent = append(r.Absent, s.name)
		}
	}
	return r, nil
}

// temperatures reads the temperature sensors under dir. Kernels without drivers for them may still show the zones.
func temperatures(dir string) (found []temperatureReading) {
	for _, pattern := range []string{"hwmon/hwmon*/temp*_input", "thermal/thermal_zone*/temp"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are valid
		for _, path := range paths {
			milli, err := strconv.ParseFloat(readText(path), 64)
			if err != nil || milli == 0 {
				continue
			}
			device := filepath.Dir(path)
			name := cmp.Or(readText(filepath.Join(device, "name")), readText(filepath.Join(device, "type")))
			if label := readText(strings.TrimSuffix(path, "_input") + "_label"); label != "" {
				name += "_" + strings.ReplaceAll(strings.ToLower(label), " ", "_")
			}
			found = append(found, temperatureReading{Sensor: name, Celsius: milli / 1000})
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

func batteries(dir string) (found []batteryReading) {
	paths, _ := filepath.Glob(filepath.Join(dir, "power_supply", "*", "capacity")) // the pattern is valid
	for _, path := range paths {
		percent, err := strconv.Atoi(readText(path))
		if err != nil {
			continue
		}
		supply := filepath.Dir(path)
		found = append(found, batteryReading{
			Name: filepath.Base(supply), Percent: percent, Status: readText(filepath.Join(supply, "status")),
		})
	}
	return found
}

// readText returns the text of a file, without spaces around it. It returns "" if the file cannot be read.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
