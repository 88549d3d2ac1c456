package ws

import (
	"bytes"
	"testing"

	"github.com/gorilla/websocket"
)

// FuzzFrameScanner: frames are counted alike however they arrive, and at the end of whole messages nothing is
// incomplete.
func FuzzFrameScanner(f *testing.F) {
	f.Add([]byte("some text"), uint8(3))
	f.Add(bytes.Repeat([]byte("x"), 70_000), uint8(0))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, payload []byte, step uint8) {
		half := len(payload) / 2
		stream := bytes.Join([][]byte{
			maskedFrame(websocket.TextMessage, payload[:half]), maskedFrame(websocket.PingMessage|finalBit,
				[]byte("ping")),
			maskedFrame(0, nil), maskedFrame(finalBit, payload[half:]), maskedFrame(finalBit|websocket.BinaryMessage,
				payload),
		}, nil)
		var s frameScanner
		frames, most := 0, 0
		for rest := stream; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			got, _ := s.scan(rest[:n])
			frames += got
			most = max(most, s.held)
			rest = rest[n:]
			if !s.busy() && len(rest) > 0 && len(rest) != len(maskedFrame(finalBit|websocket.BinaryMessage, payload)) {
				t.Fatalf("nothing is incomplete %d bytes before the end", len(rest))
			}
		}
		want := 5
		if len(payload)-half >= largePiece {
			want--
		}
		if frames != want || s.busy() || s.held != 0 || most > len(payload) {
			t.Fatalf("%d frames, busy %v, holds %d, held %d of %d", frames, s.busy(), s.held, most, len(payload))
		}
	})
}

func maskedFrame(first int, payload []byte) []byte {
	frame := []byte{byte(first)}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, maskBit|byte(n))
	case n < 1<<16:
		frame = append(frame, maskBit|126, byte(n>>8), byte(n))
	default:
		frame = append(frame, maskBit|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(append(frame, 1, 2, 3, 4), payload...)
}
