package device_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
)

// TestUnits runs the SDK's own tests with the wheel.
func TestUnits(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Abs(".")
	must(t, err)
	python := filepath.Join(project(t), "venv/bin/python")
	run(t, t.TempDir(), append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), python, "-W", "error", "-m", "unittest",
		"discover", "-q", "-s", tests)
}

// TestTypes checks types, style and format of the SDK, of a user's program, and of the examples.
func TestTypes(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(environment(t), "bin")
	cache := t.TempDir()
	venv := filepath.Join(project(t), "venv/bin/python")
	sdk, tests := "src/farhand/device", "tests/device"
	driver, device, board := "../conformance/drivers", "../../examples/device-python",
		"../../examples/device-raspberry-pi"
	for _, command := range [][]string{
		{"mypy", "--cache-dir", cache, sdk}, // as strict as pyproject.toml says
		{"mypy", "--cache-dir", cache, "--strict", "--python-executable", venv, "tests/device/types_of_users.py"},
		{"ruff", "check", "-q", "--no-cache", sdk, tests},
		{"ruff", "check", "-q", "--no-cache", "--ignore", "D1", driver, device, board},
		{"ruff", "format", "-q", "--no-cache", "--check", sdk, tests, driver, device, board},
	} {
		run(t, "../..", os.Environ(), filepath.Join(bin, command[0]), command[1:]...)
	}
}

// TestDependencies: a device loads websockets, and nothing else that Python does not bring. The wheel has its types,
// and no tests.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out := run(t, project(t), os.Environ(), "venv/bin/python", "-c", `
import sys
from importlib.metadata import files
before = set(sys.modules)
import farhand.device
print(sorted({name.split(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
print(*files("farhand"))`)
	loaded, files, _ := strings.Cut(out, "\n")
	if loaded != "['farhand', 'websockets']" {
		t.Errorf("a device loads %s", loaded)
	}
	if !strings.Contains(files, "farhand/py.typed") || strings.Contains(files, "test") {
		t.Errorf("the wheel has %s", files)
	}
}

// TestFileStoreOutlivesCrashes kills a program as it writes: what it said is kept is there, and the file stays small.
func TestFileStoreOutlivesCrashes(t *testing.T) {
	t.Parallel()
	program, err := filepath.Abs("store.py")
	must(t, err)
	file := filepath.Join(t.TempDir(), "sub", "device.jsonl")
	last := "0"
	for range 4 {
		p := startPython(t, t.TempDir(), program, file)
		for range 60 {
			line := testkit.Receive(t, "a value", p.lines)
			if strings.Contains(line, "lost") || strings.Contains(line, "added") || line == "" {
				t.Fatalf("after %s: %q %s", last, line, p.end(os.Kill))
			}
			last = line
		}
		second := startPython(t, t.TempDir(), program, file)
		second.expect(t, "in_use")
		p.end(os.Kill)
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 || info.Size() > 2<<20 {
		t.Errorf("the file has the mode %v and %d bytes", info.Mode(), info.Size())
	}
}
