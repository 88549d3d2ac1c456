package desktop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module  = "github.com/farhand/farhand"
	program = module + "/cmd/farhand"
)

// TestBuildsForOtherSystems type-checks the program for systems that the tests do not run on. That finds what the
// compiler would refuse, and compiles nothing.
func TestBuildsForOtherSystems(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"windows/amd64", "darwin/arm64"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			checkFor(t, system)
		})
	}
}

// listed is a package of `go list -deps`, which lists each after those that it imports.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Path string }
	Error           *struct{ Err string }
}

// checkFor type-checks the program with everything that it imports; of the packages of others only what they declare.
func checkFor(t *testing.T, system string) {
	goos, goarch, _ := strings.Cut(system, "/")
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-e",
		"-json=Dir,ImportPath,GoFiles,ImportMap,Module,Error", program)
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		if p.ImportPath != "unsafe" {
			checked[p.ImportPath] = p.check(t, goarch, checked)
		}
	}
	if main := checked[program]; main == nil || main.Name() != "main" {
		t.Errorf("the program was not checked: %v", main)
	}
}

func (p listed) check(t *testing.T, goarch string, checked map[string]*types.Package) *types.Package {
	ours := p.Module != nil && p.Module.Path == module
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return nil
		}
		parsed = append(parsed, f)
	}
	config := types.Config{
		IgnoreFuncBodies: !ours, FakeImportC: true, Sizes: types.SizesFor("gc", goarch),
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, there := p.ImportMap[path]; there {
				path = mapped
			}
			if found := checked[path]; found != nil {
				return found, nil
			}
			return nil, errors.New("not listed")
		}),
		Error: func(err error) {
			if ours {
				t.Error(err)
			}
		},
	}
	found, _ := config.Check(p.ImportPath, files, parsed, nil) // Error has reported what is ours
	return found
}

// importer is a types.Importer.
type importer func(path string) (*types.Package, error)

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) { return i(path) }
