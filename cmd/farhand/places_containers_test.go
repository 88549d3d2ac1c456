package main

import (
	"syscall"
	"testing"

	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

// TestContainersOnAnyPod: a conversation has one container, whatever pod hears of it: what a program left there is
// there for the next one. When the owner is killed, the next pod says so and makes another.
func TestContainersOnAnyPod(t *testing.T) {
	t.Parallel()
	if err := dockertest.Available(); err != nil {
		t.Log("no containers can run here:", err)
		return
	}
	engine, err := dockertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	h := startHands(t, 3, "FARHAND_SANDBOX=docker", "FARHAND_DOCKER_HOST="+engine.Host(),
		"FARHAND_SANDBOX_IMAGE="+dockertest.Image)
	connectDevice(t, h.pods[1].url, "phone", echoTool())
	does := func(at int, tool, args string) string { return h.doesOn(at, "phone", "group sandboxed", tool, args) }
	does(0, "exec", `{"command":"echo of the container > /tmp/kept; echo of the workspace > notes"}`)
	for at := range h.pods {
		h.has(does(at, "exec", `{"command":"cat /tmp/kept notes"}`), "of the container", "of the workspace")
		h.has(does(at, "read", `{"path":"notes"}`), "of the workspace")
	}
	h.pods[0].signal(syscall.SIGKILL)
	h.pods[0].exit(t)
	h.has(does(1, "exec", `{"command":"cat /tmp/kept; touch /tmp/anew"}`), "is gone", "can't open")
	again := does(2, "exec", `{"command":"ls /tmp"}`)
	h.has(again, "anew")
	h.hasNo(again, "is gone")
}
