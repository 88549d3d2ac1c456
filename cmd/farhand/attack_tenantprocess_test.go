package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/farhand/farhand/ws/client"
)

// attackersVariable makes this program be the attackers instead of the tests. In the process of the tests they would
// starve the model and the servers that the pods use.
const attackersVariable = "TEST_ATTACKERS"

// attackers is the process of a tenantAttack. Its standard input is the attack as JSON, and ends it. Its standard
// output is an empty line once devices and streams stand, and then the answers.
type attackers struct {
	cmd     *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	answers map[string]map[int]int
}

// runAttackers attacks until the standard input ends, and reports whether this process is for that.
func runAttackers() bool {
	if os.Getenv(attackersVariable) == "" {
		return false
	}
	var e tenantAttack
	input := json.NewDecoder(os.Stdin)
	if err := input.Decode(&e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := context.WithCancel(context.Background())
	e.begin(ctx)
	fmt.Println()
	_, _ = io.Copy(io.Discard, io.MultiReader(input.Buffered(), os.Stdin))
	stop()
	e.running.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(e.answers)
	return true
}

// startAttackers returns when the attackers have taken what they can hold, and go on with the rest.
func startAttackers(t *testing.T, e *tenantAttack) *attackers {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &attackers{cmd: exec.Command(program)}
	a.cmd.Env = append(os.Environ(), attackersVariable+"=1")
	a.cmd.Stderr = os.Stderr
	output, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.output = bufio.NewReader(output)
	if a.input, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err = a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after a test that failed in its attack
		if a.cmd.ProcessState == nil {
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
	})
	if err = json.NewEncoder(a.input).Encode(e); err == nil {
		_, err = a.output.ReadString('\n')
	}
	if err != nil {
		t.Fatalf("the attackers: %v", err)
	}
	return a
}

// stop ends the attack.
func (a *attackers) stop(t *testing.T) {
	t.Helper()
	_ = a.input.Close()
	if err := json.NewDecoder(a.output).Decode(&a.answers); err != nil {
		t.Fatalf("the attackers: %v", err)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Fatalf("the attackers: %v", err)
	}
}

// mistaken are ways in which the attackers only try to get in. In any other, requests that are only refused as invalid
// are a mistake of this test.
var mistaken = []string{"wrong tokens", "wrong codes"}

// report logs what the attackers were answered, and wants each way to have taken something: it was served, held until
// the end of the attack, or there was no room for more.
func (a *attackers) report(t *testing.T) {
	t.Helper()
	lines := ""
	for _, way := range slices.Sorted(maps.Keys(a.answers)) {
		lines += fmt.Sprintf("\n%-30s %v", way, a.answers[way])
		took := slices.Contains(mistaken, way)
		for status := range a.answers[way] {
			took = took || status/100 < 3 || status == http.StatusTooManyRequests || status == http.StatusGatewayTimeout
		}
		if !took {
			t.Errorf("the attackers were only refused %s: %v", way, a.answers[way])
		}
	}
	t.Logf("the attackers' answers:%s", lines)
}

// putToSleep connects devices of the attackers that say how they are woken, by a webhook, and disconnects them.
func (e *tenantAttack) putToSleep(t *testing.T, hook string) {
	t.Helper()
	for i, key := range e.Keys {
		for n := range 3 {
			id := fmt.Sprintf("evil-nap-%d-%d", i, n)
			connectDevice(t, e.pod(i), id, client.WithToken(key), client.WithDevice(id, "", ""), silentTool(),
				client.WithWake(func(client.WakeOffer) *client.Wake {
					return &client.Wake{Kind: "webhook", URL: hook}
				}))()
		}
	}
}
