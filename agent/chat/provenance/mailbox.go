package provenance

import (
	"strings"
	"unicode"
)

// maxLocal is how much text around an '@' is examined on each side, in bytes.
const maxLocal = 256

// eachMailbox calls visit with the unusual e-mail addresses in folded text, such as `"eve"@b.example` and
// `eve!@b.example`: any text before an '@' and a host, because programs differ in what they accept.
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
		if !isUnusualMailbox(local, host) {
			continue
		}
		a := address{text: clip(strings.Join(strings.Fields(local+"@"+host), "")), kind: KindAddress}
		if !visit(a) {
			return false
		}
		whole := strings.TrimLeft(s[at+1:min(len(s), at+1+maxLocal)], " ")
		whole = trimPunctuation(whole[:chunkEnd(whole, 0)])
		if followsHost(whole) && !visit(address{text: strings.TrimSpace(local) + "@" + whole, kind: KindURL}) {
			return false
		}
	}
}

// localPart returns the text before the '@' at at: a quoted text, or a word with the characters allowed in an address,
// or else all text back to a space. Spaces directly before the '@' are included.
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

// hostPart returns the host name, or the address in brackets, that begins at at. It may begin with spaces.
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

// pairs reports whether a character before an address and one after it form a pair, such as quotes.
func pairs(before, behind byte) bool {
	return before == behind && strings.IndexByte("'*_~`|", before) >= 0 || before == '{' && behind == '}'
}

// isUnusualMailbox reports whether the text around an '@' is an address that plainAddress does not find. If it contains
// a space or a path, the host must be a certain host name, because @ada is how people are mentioned.
func isUnusualMailbox(local, host string) bool {
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

// plainAddresses visits the address in a text, and if it is an e-mail address, also the URL that it may begin.
func plainAddresses(s string, visit func(address) bool) bool {
	a, ok := plainAddress(trimPunctuation(s))
	return !ok || visit(a) && (a.whole == "" || visit(address{text: a.whole, kind: KindURL}))
}

// followsHost reports whether a text behind an '@' is a host with a path, a port or a query. Programs that fetch take
// such a text as a URL, with or without a scheme, or as a path of SSH: git@b.example:path.
func followsHost(s string) bool {
	host := s[:hostEnd(s, 0)]
	rest := strings.TrimRight(s[len(host):], "/")
	return len(rest) > 1 && strings.IndexByte("/?#:", rest[0]) >= 0 &&
		(isHost(host, true) || isHexIPv4(host, true) || isBareIPv4(host, rest))
}

// compactMail returns a short text without the spaces and comments around the '@' and the dots of an e-mail address, if
// it is one then, else "".
func compactMail(folded string) string {
	if len(folded) > maxNameBytes || strings.Count(folded, "@") != 1 || !strings.ContainsAny(folded, " \t\r\n(") {
		return ""
	}
	plain := folded
	for {
		before, rest, ok := strings.Cut(plain, "(")
		_, after, closed := strings.Cut(rest, ")")
		if !ok || !closed {
			break
		}
		plain = before + after
	}
	for _, sign := range []string{"@", "."} {
		parts := strings.Split(plain, sign)
		for i := range parts {
			parts[i] = strings.Trim(parts[i], " \t\r\n")
		}
		plain = strings.Join(parts, sign)
	}
	_, host, _ := strings.Cut(plain, "@")
	if strings.ContainsAny(plain, " \t\r\n") || !isHost(host, true) {
		return ""
	}
	return plain
}
