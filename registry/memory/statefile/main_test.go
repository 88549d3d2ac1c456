package statefile_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
)

// childVariable makes this program a child of a test: it runs one of children.
const childVariable = "STATEFILE_TEST_CHILD"

var children = map[string]func(dir string) error{"writer": writeUntilKilled}

func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv(childVariable)]; ok {
		if err := child(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func open(dir string) (*memory.Store, error) {
	f, err := statefile.Open(dir)
	if err != nil {
		return nil, err
	}
	return memory.Open(memory.Options{}, f)
}

// reopened calls check with a store on the file of dir.
func reopened(t testing.TB, dir string, check func(m *memory.Store)) {
	t.Helper()
	m, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}()
	check(m)
}
