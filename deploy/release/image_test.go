package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestTheImageIsBuiltAsTheArchives: the Dockerfile compiles with the flags, tags and texts of .goreleaser.yaml, by the
// Go of go.mod, and gets the version and the commit. docs/install.md and the compose file give it both.
func TestTheImageIsBuiltAsTheArchives(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var releases struct {
		Builds []struct {
			Main                      string
			Env, Flags, Tags, Ldflags []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(".goreleaser.yaml")), &releases); err != nil || len(releases.Builds) != 1 {
		t.Fatalf("%d builds, %v", len(releases.Builds), err)
	}
	b := releases.Builds[0]
	ldflags := strings.NewReplacer("v{{ .Version }}", "${VERSION}", "{{ .FullCommit }}", "${COMMIT}").Replace(
		strings.Join(b.Ldflags, " "))
	want := fmt.Sprintf("%s GOOS=$TARGETOS GOARCH=$TARGETARCH go build %s -tags %s -ldflags %q -o /farhand %s",
		strings.Join(b.Env, " "), strings.Join(b.Flags, " "), strings.Join(b.Tags, ","), ldflags, b.Main)
	image := strings.ReplaceAll(read("Dockerfile"), "\\\n", " ")
	if got := strings.Join(strings.Fields(image), " "); !strings.Contains(got, "RUN "+want) {
		t.Errorf("the Dockerfile does not run %s", want)
	}
	for stage := range strings.SplitSeq(image, "\nFROM ") {
		if strings.Contains(stage, "${VERSION}") &&
			!regexp.MustCompile(`(?m)^ARG VERSION="" COMMIT=""`).MatchString(stage) {
			t.Errorf("a stage of the Dockerfile uses a version that it does not declare:\n%s", stage)
		}
	}
	if compose := read("deploy/compose.yaml"); !strings.Contains(compose, "VERSION: ${VERSION:-}") ||
		!strings.Contains(compose, "COMMIT: ${COMMIT:-}") {
		t.Error("deploy/compose.yaml does not give its image the version and the commit")
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))
	if len(version) != 2 || !strings.Contains(image, "golang:"+version[1]+"-alpine") {
		t.Errorf("the Dockerfile has not the Go of go.mod, %v", version)
	}
	module := regexp.MustCompile(`(?m)^module (\S+)`).FindStringSubmatch(read("go.mod"))
	if line := "go install " + module[1] + "/cmd/farhand@latest"; !strings.Contains(read("docs/install.md"), line) {
		t.Errorf("docs/install.md does not have %q", line)
	}
}
