// Package driver starts the drivers of device SDKs, for tests. A driver is a program with an SDK that makes devices;
// sdk/conformance/README.md has its commands and reports. SDKs lists the SDKs whose drivers are processes: one that is
// added there is tested by sdk/conformance and sdk/soak.
//
// Imports: only tests import it. Of the packages of this module it imports the Go SDK.
package driver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"sync"
	"testing"
)

// Host is a program that drives many devices, which commands and reports name.
type Host struct {
	// Send gives the program a command. It is set once the program has started.
	Send func(t testing.TB, command []byte)

	mu   sync.Mutex
	said map[string]chan map[string]any // by device
}

// maxReports is how many reports of a device may wait until the test reads them.
const maxReports = 4096

// Reports returns the reports of a device.
func (h *Host) Reports(device string) chan map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said[device] == nil {
		if h.said == nil {
			h.said = make(map[string]chan map[string]any)
		}
		h.said[device] = make(chan map[string]any, maxReports)
	}
	return h.said[device]
}

// Take keeps a report. A problem of the driver fails the test.
func (h *Host) Take(t testing.TB, text []byte) {
	report := map[string]any{}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Errorf("the driver wrote %q", text)
		return
	}
	if report["problem"] != nil {
		t.Errorf("the driver has a problem: %.2000s", text)
	}
	device, _ := report["device"].(string)
	h.Reports(device) <- report
}

// Device is one device of a host.
type Device struct {
	Host   *Host
	Name   string
	Reopen func() // restarts the host; nil: it is shared
}

// Command gives the device's program a command. It sets the member device.
func (d *Device) Command(t testing.TB, command map[string]any) {
	t.Helper()
	command["device"] = d.Name
	text, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	d.Host.Send(t, text)
}

// Reports returns what the device's program reports.
func (d *Device) Reports() <-chan map[string]any { return d.Host.Reports(d.Name) }

// Restart restarts the device's program, without its devices.
func (d *Device) Restart(t testing.TB) {
	t.Helper()
	if d.Reopen == nil {
		t.Fatal("the host is shared")
	}
	d.Reopen()
}

// Start starts a host that is a process. The returned function kills it and starts it again.
func Start(t testing.TB, make func() *exec.Cmd) (h *Host, restart func()) {
	t.Helper()
	h = &Host{}
	end := launch(t, h, make())
	t.Cleanup(func() { end() })
	return h, func() {
		end()
		end = launch(t, h, make())
	}
}

func launch(t testing.TB, h *Host, cmd *exec.Cmd) (end func()) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var writing sync.Mutex
	h.Send = func(t testing.TB, command []byte) {
		t.Helper()
		writing.Lock()
		defer writing.Unlock()
		if _, err := in.Write(append(command, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			h.Take(t, lines.Bytes())
		}
	}()
	return sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			t.Errorf("the device's program wrote: %s", stderr.Bytes())
		}
	})
}
