package ws_test

import (
	"testing"

	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws/client"
)

func TestResumeAfterThePodNoticed(t *testing.T) {
	t.Parallel()
	memory := memory.New(memory.Options{})
	a, b := newGatewayOn(t, memory), newGatewayOn(t, memory)
	r := newRelay(t, a)
	tool, entered, release := slowTool()
	_, states, _ := runSDK(t, r.url(), client.WithSession("moves"), tool)
	connected(t, states, 1)
	plain := a.call("moves", "slow", `{}`)
	receive(t, entered)
	lost := r.lose()
	close(release)
	receive(t, lost)
	r.leadTo(nil)
	r.disconnect()
	a.waitReleased()
	r.leadTo(b)
	o := await(t, plain)
	if o.err != nil {
		t.Fatalf("A noticed first: %v", o.err)
	}
}

func TestResumeBeforeThePodNoticed(t *testing.T) {
	t.Parallel()
	memory := memory.New(memory.Options{})
	a, b := newGatewayOn(t, memory), newGatewayOn(t, memory)
	r := newRelay(t, a)
	tool, entered, release := slowTool()
	_, states, _ := runSDK(t, r.url(), client.WithSession("moves"), tool)
	connected(t, states, 1)
	plain := a.call("moves", "slow", `{}`)
	receive(t, entered)
	lost := r.lose()
	close(release)
	receive(t, lost)
	r.leadTo(b)
	r.cutDevices()
	o := await(t, plain)
	if o.err != nil {
		t.Fatalf("A did not notice: %v", o.err)
	}
}

func TestResumeOnTheSamePod(t *testing.T) {
	t.Parallel()
	a := newGateway(t)
	r := newRelay(t, a)
	tool, entered, release := slowTool()
	_, states, _ := runSDK(t, r.url(), client.WithSession("moves"), tool)
	connected(t, states, 1)
	plain := a.call("moves", "slow", `{}`)
	receive(t, entered)
	lost := r.lose()
	close(release)
	receive(t, lost)
	r.cutDevices()
	o := await(t, plain)
	if o.err != nil {
		t.Fatalf("same pod did not notice: %v", o.err)
	}
}
