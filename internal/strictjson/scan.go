package strictjson

// jsonScan is a position in a text that may be JSON. Its methods skip what they are named after, and report false where
// something else is.
type jsonScan struct {
	text []byte
	at   int
}

// peek returns the next byte, zero at the end: it means nothing in JSON.
func (s *jsonScan) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *jsonScan) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *jsonScan) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// begin skips the bracket that begins an object or an array, and returns what ends it; zero if there is none.
func (s *jsonScan) begin() byte {
	switch s.peek() {
	case '{':
		s.at++
		return '}'
	case '[':
		s.at++
		return ']'
	default:
		return 0
	}
}

// key skips a name and its colon.
func (s *jsonScan) key() bool {
	if s.peek() != '"' || !s.str() {
		return false
	}
	s.space()
	return s.skip(':')
}

func (s *jsonScan) scalar() bool {
	switch s.peek() {
	case '"':
		return s.str()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

func (s *jsonScan) word(w string) bool {
	if len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *jsonScan) str() bool {
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return true
		case c < ' ':
			return false
		case c == '\\':
			n := escapeLength(s.text[i+1:])
			if n == 0 {
				return false
			}
			i += n
		}
	}
	return false
}

// escapeLength returns how long what follows a backslash is, zero if it is no escape.
func escapeLength(rest []byte) int {
	if len(rest) == 0 {
		return 0
	}
	switch rest[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		for i := 1; i < 5; i++ {
			if i == len(rest) || !isHex(rest[i]) {
				return 0
			}
		}
		return 5
	default:
		return 0
	}
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func (s *jsonScan) number() bool {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		return s.digits()
	}
	return true
}

// digits skips at least one.
func (s *jsonScan) digits() bool {
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}
