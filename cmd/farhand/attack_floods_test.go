package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// floods are what a device may send all the time, as sessions that are always new.
var floods = map[string]func() []byte{
	"large messages that are no JSON": func() []byte {
		return append([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte("["), 0x0f0000)...)
	},
	"messages over the limit": func() []byte {
		return append([]byte{0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 1<<20)...)
	},
	"answers to calls nobody made": func() []byte {
		return maskedText(fmt.Sprintf(`{"type":"tool_result","id":"%016x","output":"x"}`, rand.Uint64()))
	},
}

// TestAttackFloods: sixty sockets that send what costs most, and come back as other sessions, slow down one another.
// The honest device, which has the same address, is not slowed down.
func TestAttackFloods(t *testing.T) {
	for name, frame := range floods {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t, 1)
			before := cpuTime(t, a.pods[0])
			var sockets, frames atomic.Int64
			const length = 5 * time.Second
			a.under(t, length, func(ctx context.Context) {
				var attackers sync.WaitGroup
				for i := range 60 {
					attackers.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							flood(ctx, a.pods[0].url, fmt.Sprintf("flood-%d-%d", i, n), fleetToken, frame, &frames)
							sockets.Add(1)
						}
					})
				}
				attackers.Wait()
			})
			t.Logf("%d sockets wrote %d frames, %v of CPU in %v", sockets.Load(), frames.Load(),
				cpuTime(t, a.pods[0])-before, length)
			a.peakBelow(t, 400)
			a.calmWithin(t, 10*time.Second)
		})
	}
}

// flood writes two hundred frames over one socket, if it is let.
func flood(ctx context.Context, url, session, token string, frame func() []byte, count *atomic.Int64) {
	conn, r, _, err := bareSocket(ctx, url, "session_id="+session, token)
	if err != nil || conn == nil {
		waitFor(ctx, 20*time.Millisecond)
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for err := error(nil); err == nil; {
			_, _, err = readFrame(r)
		}
	}()
	for n := 0; n < 200 && ctx.Err() == nil; n++ {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(frame()); err != nil {
			break
		}
		count.Add(1)
	}
	conn.Close()
	<-read
}
