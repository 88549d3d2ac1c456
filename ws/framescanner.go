package ws

// frameScanner follows the frames in the bytes that a device sends (RFC 6455, section 5.2). The WebSocket library
// reports whole messages only, and a message may have any number of empty pieces. Bytes that break the rules are left
// to the library, which ends the connection.
type frameScanner struct {
	first   byte   // of the header
	header  uint8  // bytes of the header so far; none between frames
	size    uint8  // bytes of the whole header, once the second byte is known
	lengths uint8  // bytes of the header up to the end of the length
	open    bool   // a message has begun whose last frame has not ended
	length  uint64 // of the payload, as far as the header is read
	rest    uint64 // bytes of the payload that are still to come
	held    int    // bytes of payload of the message that is open
}

const (
	finalBit   = 0x80 // of the first byte
	opcodeBits = 0x0f // of the first byte; zero: a further piece of a message
	maskBit    = 0x80 // of the second byte
)

// busy reports whether a frame or a message is incomplete.
func (s *frameScanner) busy() bool { return s.header > 0 || s.rest > 0 || s.open }

// scan follows p and returns how many frames began in it. Large pieces of a message are not counted: they cost their
// bytes already, and some libraries split every message into pieces of 4 KiB. The number is below zero if the header of
// such a piece began before p. scan also returns whether there was a place in p where nothing was incomplete.
func (s *frameScanner) scan(p []byte) (frames int, boundary bool) {
	for len(p) > 0 {
		if s.rest > 0 {
			n := min(s.rest, uint64(len(p)))
			p = p[n:]
			s.rest -= n
			if s.first&controlBit == 0 {
				s.held += int(n)
			}
		} else {
			if s.header == 0 {
				frames++
			}
			if s.readHeader(p[0]) && s.isLargePiece() {
				frames--
			}
			p = p[1:]
		}
		if s.header == 0 && s.rest == 0 {
			boundary = s.endFrame() || boundary
		}
	}
	return frames, boundary
}

// largePiece is the size in bytes from which on a piece of a message does not count as a frame.
const largePiece = 1 << 10

// isLargePiece reports whether the frame whose header was just read is a large piece.
func (s *frameScanner) isLargePiece() bool { return s.first&opcodeBits == 0 && s.length >= largePiece }

// readHeader takes one more byte of a header, and reports whether it was the last.
func (s *frameScanner) readHeader(b byte) (complete bool) {
	switch {
	case s.header == 0:
		s.first, s.length = b, 0
	case s.header == 1:
		s.lengths = 2
		switch n := b & lengthBits; n {
		case 126:
			s.lengths = 4
		case 127:
			s.lengths = 10
		default:
			s.length = uint64(n)
		}
		s.size = s.lengths
		if b&maskBit != 0 {
			s.size += 4
		}
	case s.header < s.lengths:
		s.length = s.length<<8 | uint64(b)
	}
	s.header++
	if s.header > 1 && s.header == s.size {
		s.header, s.rest = 0, s.length
		return true
	}
	return false
}

// endFrame notes that a frame is complete, and reports whether nothing is incomplete now.
func (s *frameScanner) endFrame() bool {
	if s.first&controlBit == 0 {
		s.open = s.first&finalBit == 0
		if !s.open {
			s.held = 0
		}
	}
	return !s.open
}
