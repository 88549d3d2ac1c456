package provenance

import (
	"strings"
	"unicode"

	"golang.org/x/net/publicsuffix"
)

// address is what reaches somebody, in one form for all ways to write it.
type address struct {
	text  string // without scheme, www., a slash at the end; an account without spaces
	host  string // of a URL
	query bool   // of a URL: it carries data
	kind  Kind
}

// maxAddress is how much of an address is looked at.
const maxAddress = 2048

// eachAddress calls visit with every address in folded text whose tokens are given, until it returns false.
func eachAddress(s string, tokens []token, visit func(address) bool) {
	for at := 0; at < len(s); {
		end := chunkEnd(s, at)
		if !chunkAddresses(s[at:end], visit) {
			return
		}
		at = end + 1
	}
	if eachMailbox(s, visit) {
		accounts(s, tokens, visit)
	}
}

// chunkEnd returns where the text without spaces ends that begins at a place. Whatever stands before an '@' in the
// host of a URL belongs to it: programs differ in which of the two sides they connect to.
func chunkEnd(s string, at int) int {
	host := 0 // until here
	for end := at; end < len(s); end++ {
		switch {
		case s[end] == ':' && strings.HasPrefix(s[end:], "://"):
			rest := s[end+3:]
			if i := strings.IndexAny(rest, "/?# \t\r\n"); i >= 0 {
				rest = rest[:i]
			}
			host = end + 3 + strings.LastIndexByte(rest, '@')
		case endsChunk(s[end]) && end >= host:
			return end
		}
	}
	return len(s)
}

// endsChunk reports whether a character is never a part of an address.
func endsChunk(b byte) bool {
	return b <= ' ' || b == '<' || b == '>' || b == '"' || b == '`' || b == '|' || b == '\\' || b == '{' || b == '}'
}

// schemes are those of URLs without slashes: some name no host, and of some programs take the slashes as said.
var schemes = []string{"data:", "javascript:", "https:", "http:", "file:/"}

// chunkAddresses finds the addresses in text without spaces.
func chunkAddresses(s string, visit func(address) bool) bool {
	if strings.IndexByte(s, '.') < 0 && strings.IndexByte(s, '@') < 0 && strings.IndexByte(s, ':') < 0 {
		return true
	}
	if i := strings.Index(s, "://"); i > 0 {
		begin := i
		for begin > 0 && (isWord(rune(s[begin-1])) || s[begin-1] == '+' || s[begin-1] == '-') {
			begin--
		}
		return visit(urlOf(s[begin:])) && chunkAddresses(s[:begin], visit)
	}
	for _, scheme := range schemes {
		if i := strings.Index(s, scheme); i >= 0 && len(trimPunctuation(s[i:])) >= len(scheme) {
			return visit(address{text: clip(trimPunctuation(s[i:])), kind: KindURL}) && chunkAddresses(s[:i], visit)
		}
	}
	for _, piece := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(",;()[]'’!*", r) }) {
		if a, ok := plainAddress(trimPunctuation(piece)); ok && !visit(a) {
			return false
		}
	}
	return true
}

func trimPunctuation(s string) string { return strings.Trim(s, ".,;:!?()[]'’*_~") }

func clip(s string) string { return s[:min(len(s), maxAddress)] }

// urlOf returns the address of a text that is a URL, with a scheme or without.
func urlOf(s string) address {
	s = clip(strings.TrimRight(s, ".,;:!?)]'’*"))
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	if before, fragment, _ := strings.Cut(s, "#"); !strings.ContainsAny(fragment, ",;:@") { // else it may be a list
		s = before
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "www."), "/")
	end := strings.IndexAny(s, "/?#")
	if end < 0 {
		end = len(s)
	}
	host := strings.TrimSuffix(s[:end], ".")
	return address{text: host + s[end:], host: host, query: strings.IndexByte(s, '?') >= 0, kind: KindURL}
}

// plainAddress returns the address of an e-mail address, or of a URL without a scheme.
func plainAddress(s string) (address, bool) {
	if user, host, ok := strings.Cut(s, "="); ok && !strings.ContainsAny(user, "/@") { // mail=a@b.example
		s = trimPunctuation(host)
	}
	for _, scheme := range []string{"mailto:", "sip:", "xmpp:", "//"} {
		s = strings.TrimPrefix(s, scheme)
	}
	end := strings.IndexAny(s, "/?")
	if end < 0 {
		end = len(s)
	}
	if i := strings.LastIndexByte(s[:end], '@'); i > 0 && i < end-1 {
		if strings.IndexByte(s[end:], '@') >= 0 { // a second one: neither stands for both
			end = len(s)
		}
		return address{text: clip(s[:end]), kind: KindAddress}, true
	}
	host := s[:end]
	if i := strings.LastIndexByte(host, ':'); i > 0 {
		host = host[:i]
	}
	if !isHost(host, end < len(s) || strings.HasPrefix(host, "www.")) {
		return address{}, false
	}
	return urlOf(s), true
}

// fileEnds are top-level domains that ends of file names are taken for, and that are taken for ends of file names.
const fileEnds = " ai app cc md mov pl ps py rs sh so st zip name "

// isHost reports whether a text is the name of a host, or an IP address. A text that may be the name of a file is a
// host if it is sure to be an address.
func isHost(s string, sure bool) bool {
	dot := strings.LastIndexByte(s, '.')
	if dot <= 0 || dot == len(s)-1 || len(s) > 253 || strings.Contains(s, "..") {
		return false
	}
	numeric := true
	for i := range len(s) {
		b := s[i]
		if b != '.' && b != '-' && (b < 0x80 && !isWord(rune(b))) {
			return false
		}
		numeric = numeric && (b == '.' || b >= '0' && b <= '9')
	}
	if numeric {
		return strings.Count(s, ".") == 3
	}
	suffix, listed := publicsuffix.PublicSuffix(s)
	if !listed && !strings.Contains(suffix, ".") || suffix == s {
		return false
	}
	return sure || !strings.Contains(fileEnds, " "+suffix+" ")
}

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
