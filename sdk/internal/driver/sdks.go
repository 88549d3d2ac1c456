package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/farhand/farhand/sdk/internal/kotlintest"
)

// SDK is a device SDK whose driver is a process.
type SDK struct {
	Flag   string   // its name in the flag -sdks
	Name   string   // its name in tables
	Has    []string // of what cases of sdk/conformance need
	Shared bool     // a process can drive many devices, if they need no store

	// Prepare makes what all its drivers need. It returns the command that starts one with its store in a file. It is
	// called in a folder beside sdk/conformance.
	Prepare func(t testing.TB) (command func(store string) *exec.Cmd)
}

// SDKs returns all SDKs in the order of tables. typescript returns the folder of the compiled TypeScript SDK.
func SDKs(typescript func() string) []SDK {
	most := []string{"conversation", "store"}
	everything := append(slices.Clone(most), "wake")
	return []SDK{
		{Flag: "go", Name: "Go", Has: everything, Prepare: goSDK},
		{Flag: "node", Name: "Node.js", Has: everything, Shared: true, Prepare: node(typescript)},
		{Flag: "python", Name: "Python", Has: most, Shared: true, Prepare: python},
		{Flag: "kotlin", Name: "Kotlin", Has: most, Shared: true, Prepare: kotlin},
	}
}

func node(typescript func() string) func(testing.TB) func(store string) *exec.Cmd {
	return func(testing.TB) func(store string) *exec.Cmd {
		sdk := filepath.Join(typescript(), "node.js")
		return func(store string) *exec.Cmd {
			return exec.Command("node", "--no-warnings", "../conformance/drivers/node.mjs", sdk, store)
		}
	}
}

func kotlin(t testing.TB) func(store string) *exec.Cmd {
	t.Helper()
	classes := kotlintest.ClassPath(kotlintest.Build(t))
	return func(store string) *exec.Cmd {
		return exec.Command("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", classes,
			"io.github.farhand.conformance.DriverKt", store)
	}
}

// python starts the driver in the environment of .ci/deps, which has what the SDK needs. The SDK itself comes from its
// sources.
func python(t testing.TB) func(store string) *exec.Cmd {
	t.Helper()
	program, err := filepath.Abs("../../.cache/sdk-python/bin/python")
	must(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Fatal("the packages of the Python SDK are missing: run sh .ci/deps sdk-python")
	}
	return func(store string) *exec.Cmd {
		cmd := exec.Command(program, "../conformance/drivers/python.py", store)
		cmd.Env = append(os.Environ(), "PYTHONPATH=../python/src", "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}
}

// goVariable makes a test's program the driver of the Go SDK. It names the file that outlives the program.
const goVariable = "FARHAND_TEST_DRIVER"

func goSDK(testing.TB) func(store string) *exec.Cmd {
	return func(store string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), goVariable+"="+store)
		return cmd
	}
}

// Main is the main function of the Go SDK's driver, if this process was started as that. It reports whether it was.
// TestMain must call it first.
func Main() bool {
	store := os.Getenv(goVariable)
	if store == "" {
		return false
	}
	(&goDriver{store: store}).run()
	return true
}

// BuildTypeScript compiles the TypeScript SDK into a folder that lasts as long as the test.
func BuildTypeScript(t testing.TB) (dist string) {
	t.Helper()
	source, err := filepath.Abs("../typescript")
	must(t, err)
	if _, err := os.Stat(filepath.Join(source, "node_modules/.package-lock.json")); err != nil {
		t.Fatal("the packages of the TypeScript SDK are missing: run make deps")
	}
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(source, "node_modules"), filepath.Join(dir, "node_modules")))
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600))
	dist = filepath.Join(dir, "dist")
	cmd := exec.Command("node", "node_modules/typescript/bin/tsc", "--outDir", dist)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return dist
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
