package strictjson

import "encoding/json"

// plainNesting is how deep Valid looks by itself.
const plainNesting = 64

// Valid is json.Valid, several times as fast: the arguments of a call are checked wherever they could do harm.
func Valid(text []byte) bool {
	s := jsonScan{text: text}
	var open [plainNesting]byte // what closes what is open
	depth := 0
	for {
		s.space()
		switch closing := s.begin(); {
		case closing == 0:
			if !s.scalar() {
				return false
			}
		case depth == plainNesting:
			return json.Valid(text)
		default:
			open[depth] = closing
			depth++
			s.space()
			if s.peek() == closing {
				break
			}
			if closing == '}' && !s.key() {
				return false
			}
			continue
		}
		for { // a value has ended, and with it perhaps what it is in
			s.space()
			if depth == 0 {
				return s.at == len(text)
			}
			if s.peek() != open[depth-1] {
				break
			}
			s.at++
			depth--
		}
		if !s.skip(',') {
			return false
		}
		if s.space(); open[depth-1] == '}' && !s.key() {
			return false
		}
	}
}
