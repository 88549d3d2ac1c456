package demotools

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/sensors"
)

// powerSupplies is where Linux shows batteries.
const powerSupplies = "/sys/class/power_supply"

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

func deviceInfo(ctx context.Context, _ struct{}) (any, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	info := machineInfo{Hostname: hostname, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	// Values that the system does not report are left out: the rest is still useful.
	if h, err := host.InfoWithContext(ctx); err == nil {
		info.Platform, info.Version = h.Platform, h.PlatformVersion
		info.Kernel, info.UptimeSeconds = h.KernelVersion, h.Uptime
	}
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		info.MemoryBytes = m.Total
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

// readSensors reads all sensors, or the requested one.
func readSensors(ctx context.Context, args struct{ Type string }) (any, error) {
	r := reading{ReadAt: time.Now().UTC()}
	for _, s := range []struct {
		name string
		read func() bool
	}{
		{"load", func() bool {
			l, err := load.AvgWithContext(ctx)
			if err == nil {
				r.Load = &loadReading{One: l.Load1, Five: l.Load5, Fifteen: l.Load15}
			}
			return err == nil
		}},
		{"memory", func() bool {
			m, err := mem.VirtualMemoryWithContext(ctx)
			if err == nil {
				r.Memory = &memoryReading{Total: m.Total, Available: m.Available}
			}
			return err == nil
		}},
		{"temperature", func() bool { r.Temperature = temperatures(ctx); return len(r.Temperature) > 0 }},
		{"battery", func() bool { r.Battery = batteries(powerSupplies); return len(r.Battery) > 0 }},
	} {
		if (args.Type == "" || args.Type == s.name) && !s.read() {
			r.Absent = append(r.Absent, s.name)
		}
	}
	return r, nil
}

func temperatures(ctx context.Context) []temperatureReading {
	// An error may come with readings: one broken sensor must not hide the others.
	stats, _ := sensors.TemperaturesWithContext(ctx)
	var found []temperatureReading
	for _, s := range stats {
		if s.Temperature != 0 {
			found = append(found, temperatureReading{Sensor: s.SensorKey, Celsius: s.Temperature})
		}
	}
	return found
}

// batteries reads the batteries that Linux shows under dir. Other systems have no such folder, and so no batteries
// here.
func batteries(dir string) []batteryReading {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "capacity"))
	if err != nil {
		return nil
	}
	var found []batteryReading
	for _, path := range paths {
		percent, err := strconv.Atoi(readLine(path))
		if err != nil {
			continue
		}
		supply := filepath.Dir(path)
		found = append(found, batteryReading{
			Name: filepath.Base(supply), Percent: percent, Status: readLine(filepath.Join(supply, "status")),
		})
	}
	return found
}

func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
