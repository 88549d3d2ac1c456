package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Very many devices that send the longest frames at once, and come back when they are closed.
func TestAttackLongFrames(t *testing.T) {
	const devices = 45
	a := startAttacked(t, 1)
	items := repeated(120_000, constantly(`{"":1}`)) // 0.8 MB
	for name, frame := range map[string]string{
		"register_tools": `{"type":"register_tools","tools":[` + items + `]}`,
		"tool_result": `{"type":"tool_result","id":"00000000-0000-0000-0000-000000000000","success":true,` +
			`"output":"x","structured":[` + items + "," + items + "," + items + `]}`,
		"escapes": `{"type":"tool_result","id":"00000000-0000-0000-0000-000000000000","success":true,"output":"` +
			strings.Repeat(`\u0061`, 600_000) + `"}`,
		"unknown": `{"type":"nothing","x":[` + items + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var sent, connects atomic.Int64
			a.under(t, attackTime, func(ctx context.Context) {
				var attackers sync.WaitGroup
				for i := range devices {
					attackers.Go(func() {
						for ctx.Err() == nil {
							device := dialAttack(ctx, a.pods[0].url, fmt.Sprint(name, "-", i))
							if device == nil {
								waitFor(ctx, 50*time.Millisecond)
								continue
							}
							connects.Add(1)
							stop := context.AfterFunc(ctx, func() { device.Close() })
							go func() {
								for {
									if _, _, err := device.NextReader(); err != nil {
										return
									}
								}
							}()
							for device.WriteMessage(1, []byte(frame)) == nil {
								sent.Add(1)
							}
							stop()
							device.Close()
						}
					})
				}
				attackers.Wait()
			})
			t.Logf("%d frames sent over %d connections", sent.Load(), connects.Load())
			a.peakBelow(t, 400)
			a.calmWithin(t, 4*time.Second) // what is in the buffers of its sockets is still read
		})
	}
}
