package legible

const (
	escape        = 0x1b
	oneByteEscape = '\u009b' // escape and bracket in one character
	bell          = 0x07

	lineSeparator      = '\u2028'
	paragraphSeparator = '\u2029'
)

// escapeLen returns the length of the terminal escape that s begins with; of one that is not complete, of its
// introducer.
func escapeLen(s string) int {
	if len(s) < 2 {
		return 1
	}
	switch c := s[1]; {
	case c == '[':
		return 2 + controlLen(s[2:])
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		return 2 + stringLen(s[2:])
	case c >= 0x20 && c < 0x30:
		i := 1
		for i < len(s) && s[i] >= 0x20 && s[i] < 0x30 {
			i++
		}
		if i < len(s) && s[i] >= 0x30 && s[i] < 0x7f {
			i++
		}
		return i
	case c >= 0x30 && c < 0x7f:
		return 2
	default:
		return 1
	}
}

// controlLen returns the length of the parameters and the final character of a control sequence.
func controlLen(s string) int {
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x40 {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] < 0x7f {
		i++
	}
	return i
}

// stringLen returns the length of a control string with its terminator, zero if it has none: what was never ended is
// shown, not swallowed. It stops at any other control character, so a text full of beginnings is still read only twice.
func stringLen(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case c == bell:
			return i + 1
		case c == escape && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case c < 0x20 && c != '\t':
			return 0
		}
	}
	return 0
}
