package provenance

import (
	"strings"
	"unicode"
)

// maxLocal is how much is looked at before an '@'.
const maxLocal = 256

// eachMailbox calls visit with the e-mail addresses in folded text that are not plain words: `"eve"@b.example`,
// `eve!@b.example`, `eve @b.example`. Whatever stands before an '@' and a host is an address, because programs differ
// in what they let stand there. Plain ones are found as pieces of a chunk.
func eachMailbox(s string, visit func(address) bool) bool {
	for at := 0; ; at++ {
		next := strings.IndexByte(s[at:], '@')
		if next < 0 {
			return true
		}
		at += next
		local, host := localPart(s, at), hostPart(s, at+1)
		for len(local) > 0 && at+1+len(host) < len(s) && pairs(local[0], s[at+1+len(host)]) {
			local = local[1:]
		}
		if isOdd(local, host) &&
			!visit(address{text: clip(strings.Join(strings.Fields(local+"@"+host), "")), kind: KindAddress}) {
			return false
		}
	}
}

// localPart returns what stands before the '@' at a place: a quoted text, a word with the signs that may stand in an
// address, or else all until a space. A space between it and the '@' does not count.
func localPart(s string, at int) string {
	s = s[max(0, at-maxLocal):at]
	if strings.HasSuffix(s, `"`) {
		return s[max(0, strings.LastIndexByte(s[:len(s)-1], '"')):]
	}
	word := strings.TrimRight(s, " ")
	spaces := s[len(word):]
	start := strings.LastIndexAny(word, " \t\r\n<>,;:()[]=\"\\@") + 1
	if start == len(word) {
		start = strings.LastIndexAny(word, " \t\r\n@") + 1
	}
	return word[start:] + spaces
}

// hostPart returns the name of a host, or an address in brackets, that begins at a place. It may begin with spaces.
func hostPart(s string, at int) string {
	end := at
	for end < len(s) && s[end] == ' ' && end < at+4 {
		end++
	}
	if end < len(s) && s[end] == '[' {
		if n := strings.IndexByte(s[end:min(len(s), end+maxLocal)], ']'); n > 0 {
			return s[at : end+n+1]
		}
	}
	for end < min(len(s), at+maxLocal) && (s[end] >= 0x80 || isWord(rune(s[end])) || s[end] == '.' || s[end] == '-') {
		end++
	}
	return strings.TrimRight(s[at:end], ".-_ ")
}

// pairs reports whether a sign before an address belongs to the one behind it.
func pairs(before, behind byte) bool {
	return before == behind && strings.IndexByte("'*_~`|", before) >= 0 || before == '{' && behind == '}'
}

// isOdd reports whether something before an '@' makes an address that plain pieces do not show. What stands at a
// distance, or behind a path, must belong to a host that is sure to be one: @ada is how people are mentioned.
func isOdd(local, host string) bool {
	name := strings.TrimLeft(host, " ")
	if local == "" || name == "" || strings.Contains(local, "://") {
		return false
	}
	sure := name[0] == '[' || isHost(name, true)
	switch last := local[len(local)-1]; {
	case last == ' ' || name != host || strings.ContainsAny(local, "/?"):
		return sure
	case strings.ContainsAny(local, "!*'’{}|`\"") || strings.IndexByte("_~.", local[0]) >= 0,
		strings.IndexByte("<>,;:()[]=\\", last) >= 0, name[0] == '[':
		return sure || strings.ContainsFunc(name, unicode.IsLetter)
	}
	return false
}
