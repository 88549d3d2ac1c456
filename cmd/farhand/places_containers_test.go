package main

import (
	"context"
	"net/http"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

// startContainers starts pods whose sandbox is one engine of containers. It returns nil if none can run here.
func startContainers(t *testing.T, pods int) (*hands, *dockertest.Engine) {
	t.Helper()
	if err := dockertest.Available(); err != nil {
		t.Log("no containers can run here:", err)
		return nil, nil
	}
	engine, err := dockertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	return startHands(t, pods, "FARHAND_SANDBOX=docker", "FARHAND_DOCKER_HOST="+engine.Host(),
		"FARHAND_SANDBOX_IMAGE="+dockertest.Image), engine
}

// TestContainersOnAnyPod: a conversation has one container, whatever pod hears of it: what a program left there is
// there for the next one. When the owner is killed, the next pod says so and makes another.
func TestContainersOnAnyPod(t *testing.T) {
	t.Parallel()
	h, _ := startContainers(t, 3)
	if h == nil {
		return
	}
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

// TestAnErasedConversationKeepsNoContainer: whatever pod hears that a conversation is deleted, its container ends, also
// if the pod that made it was away, and the next conversation under its id has another one.
func TestAnErasedConversationKeepsNoContainer(t *testing.T) {
	t.Parallel()
	h, engine := startContainers(t, 2)
	if h == nil {
		return
	}
	docker, err := engine.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { docker.Close() })
	containers := func() int {
		list, err := docker.ContainerList(context.Background(), client.ContainerListOptions{All: true})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	does := func(at int, command string) string {
		return h.doesOn(at, "phone", "group sandboxed", "exec", `{"command":"`+command+`"}`)
	}
	for _, away := range []bool{false, true} {
		disconnect := connectDevice(t, h.pods[0].url, "phone", echoTool())
		does(1, "echo of before > /tmp/kept; echo of before > notes")
		if containers() != 1 {
			t.Fatalf("%d containers", containers())
		}
		if away {
			h.pods[1].signal(syscall.SIGSTOP)
		}
		erase := func() {
			status, raw := request(t, http.MethodDelete, h.pods[0].url+"/api/sessions/phone", "")
			if status != http.StatusNoContent {
				t.Fatalf("delete: %d %s", status, raw)
			}
		}
		erase()
		if away {
			h.pods[1].signal(syscall.SIGCONT)
		}
		eventually(t, waitLimit, "its container is removed", func() bool { return containers() == 0 })
		disconnect()
		disconnect = connectDevice(t, h.pods[0].url, "phone", echoTool())
		for at := range h.pods {
			next := does(at, "cat /tmp/kept notes")
			h.has(next, "can't open")
			h.hasNo(next, "of before", "is gone")
		}
		erase()
		eventually(t, waitLimit, "the next container is removed", func() bool { return containers() == 0 })
		disconnect()
	}
}
