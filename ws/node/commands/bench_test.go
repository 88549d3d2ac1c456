package commands_test

import (
	"testing"
	"time"

	"github.com/farhand/farhand/ws/node/commands"
)

// BenchmarkCall is a short call of a node's tool: its arguments, and its result.
func BenchmarkCall(b *testing.B) {
	c := everything("linux")
	args, payload := mustJSON(`{"bins":["git"]}`), mustJSON(`{"bins":{"git":"/usr/bin/git"}}`)
	b.ReportAllocs()
	for b.Loop() {
		inv, err := c.Invoke("which", commands.Call{Args: args, Left: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if step := commands.After(c, "which", inv, commands.Answer{Payload: payload}); !step.Result.Success {
			b.Fatal(step)
		}
	}
}
