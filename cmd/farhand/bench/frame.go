package bench

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Opcodes of WebSocket frames (RFC 6455).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// readFrame returns the next frame from a server. Its payload is stored in buf, or in a larger array if necessary.
func readFrame(r *bufio.Reader, buf []byte) (opcode byte, payload []byte, err error) {
	var head [10]byte
	if _, err = io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	switch n {
	case 126:
		_, err = io.ReadFull(r, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:4]))
	case 127:
		_, err = io.ReadFull(r, head[2:10])
		n = binary.BigEndian.Uint64(head[2:10])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = grow(buf, int(n))
	_, err = io.ReadFull(r, payload)
	return head[0] & 0x0f, payload, err
}

// maskedFrame encodes a masked frame, as clients must send. The mask is zero, which servers accept and which costs
// nothing.
func maskedFrame(opcode byte, payload []byte) []byte {
	b := make([]byte, 0, 14+len(payload))
	b = append(b, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(b, 0, 0, 0, 0)
	return append(b, payload...)
}
