package soak_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
)

var previous = flag.String("from", "",
	"a tag or commit, such as HEAD~1: TestUpgrade runs its pods beside those of this one")

// TestUpgrade replaces the pods of a fleet under load, one after the other, by those of this commit, and back: by pods
// of the other commit, which find what this one wrote. In each direction one pod is drained and one killed. Between two
// replacements pods of both commits serve the devices together. Conversations, keys, approvals and group calls go on
// across each replacement.
func TestUpgrade(t *testing.T) {
	if *previous == "" {
		t.Log("no other commit is named (-from), so there is nothing to do")
		return
	}
	sdks := "go"
	if *chosen != "" {
		sdks = *chosen
	}
	before, now := buildCommit(t, *previous), buildFarhand(t)
	f, pods := ownFleet(t, before, redistest.Single(t), talkingModel(t)...)
	beside := startOverlap(t, f, pods, now)
	f.faults = 2 * len(pods) // forward, and back
	replace := f.breakNext
	f.breakNext = func(t *testing.T, i int) (what, of string) {
		program := now
		if i/len(pods)%2 == 1 {
			program = before
		}
		replaced := pods[i%len(pods)]
		beside.begin(replaced)
		replaced.program = program
		what, of = replace(t, i)
		beside.finish(replaced)
		return what, of
	}
	stop := f.stop
	f.stop = func(t *testing.T) {
		t.Helper()
		beside.end()
		stop(t)
	}
	soak(t, f, strings.Split(sdks, ","))
}

// buildCommit builds the program of another commit, from its files alone, and without the race detector: that takes
// minutes, and its races are not those of this commit.
func buildCommit(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "files.tar")
	for _, command := range [][]string{
		{"git", "-C", "../..", "archive", "--output", archive, name},
		{"tar", "-C", dir, "-xf", archive},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	return buildIn(t, dir, "-trimpath") // so that another run finds it in the cache, wherever its files are
}
