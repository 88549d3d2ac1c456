package provenance

import (
	"cmp"
	"net/url"
	"strings"
)

// address is a value that reaches a person or system, in one form for all spellings.
type address struct {
	text  string // without scheme, www. and trailing slash; an account without spaces
	host  string // of a URL
	query bool   // of a URL: it carries data
	kind  Kind
	whole string // of an e-mail address: the URL that it may begin, as user and host; empty: none
}

// maxAddress is how much of an address is examined, in bytes.
const maxAddress = 2048

// eachAddress calls visit with every address in folded text, which has these tokens, until visit returns false.
func eachAddress(s string, tokens []token, visit func(address) bool) {
	for at := 0; at < len(s); {
		end := chunkEnd(s, at)
		if !chunkAddresses(s[at:end], visit) {
			return
		}
		at = end + 1
	}
	if eachLongURL(s, visit) && eachMailbox(s, visit) {
		accounts(s, tokens, visit)
	}
}

// chunkEnd returns the end of the text without spaces that begins at at. Text before an '@' in the host of a URL
// belongs to the URL: programs differ in which of the two sides they connect to.
func chunkEnd(s string, at int) int {
	host := 0 // end of the last such text
	for end := at; end < len(s); end++ {
		switch {
		case s[end] == ':' && strings.HasPrefix(s[end:], "://"):
			rest := s[end+3:]
			if i := strings.IndexAny(rest, "/?# \t\r\n"); i >= 0 {
				rest = rest[:i]
			}
			host = end + 3 + strings.LastIndexByte(rest, '@')
			if i := strings.IndexAny(rest, "<>\"`|\\"); i >= 0 {
				rest = rest[:i]
			}
			if strings.IndexByte(rest, '{') >= 0 { // a glob of curl
				host = max(host, end+3+len(rest))
			}
		case endsChunk(s[end]) && end >= host:
			return end
		}
	}
	return len(s)
}

func endsChunk(b byte) bool {
	return b <= ' ' || b == '<' || b == '>' || b == '"' || b == '`' || b == '|' || b == '\\' || b == '{' || b == '}'
}

// schemes are schemes of URLs without slashes. Some name no host. For the others, some programs add the slashes.
var schemes = []string{"data:", "javascript:", "https:", "http:", "file:/"}

// chunkAddresses finds the addresses in text without spaces.
func chunkAddresses(s string, visit func(address) bool) bool {
	if strings.IndexByte(s, '.') < 0 && strings.IndexByte(s, '@') < 0 && strings.IndexByte(s, ':') < 0 &&
		!strings.Contains(s, "0x") && !hasLongNumber(s) {
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
		if ip := strings.Trim(piece, ".,;!?'’*_~"); isIPv6(ip) {
			if !visit(address{text: ip, host: ip, kind: KindURL}) {
				return false
			}
			continue
		}
		if !piecesAddresses(piece, visit) {
			return false
		}
	}
	return true
}

// piecesAddresses finds the addresses in a piece, and those behind each & that is not in the query of one. A part
// behind an & ends at the next one, or after maxAddress bytes if it may be the beginning of a URL or of an e-mail
// address: the work grows with the length of the piece, not with its square.
func piecesAddresses(piece string, visit func(address) bool) bool {
	for i := innerSlashes(piece, 1); i > 0; {
		next := innerSlashes(piece, i+2)
		if !plainAddresses(piece[i:cmp.Or(next, len(piece))], visit) {
			return false
		}
		i = next
	}
	for part := piece; ; {
		if !plainAddresses(part, visit) {
			return false
		}
		before, after, more := strings.Cut(piece, "&")
		if !more || strings.Contains(before, "?") {
			return true
		}
		piece = after
		part, _, _ = strings.Cut(piece, "&")
		if strings.ContainsAny(part, "/?@") {
			part = piece[:max(len(part), len(clip(piece)))]
		}
	}
}

func trimPunctuation(s string) string { return strings.Trim(s, ".,;:!?()[]'’*_~") }

func clip(s string) string { return s[:min(len(s), maxAddress)] }

// urlOf returns the address of a URL, with or without a scheme.
func urlOf(s string) address {
	s = clip(strings.TrimRight(s, ".,;:!?)]'’*"))
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	if before, fragment, _ := strings.Cut(s, "#"); !strings.ContainsAny(fragment, ",;:@") { // it may be a list
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
	mail := s
	s, slashes := withoutPrefix(s)
	end := strings.IndexAny(s, "/?")
	if end < 0 {
		end = len(s)
	}
	if i := strings.LastIndexByte(s[:end], '@'); i > 0 && i < end-1 {
		if strings.IndexByte(s[end:], '@') >= 0 { // there is a second '@': keep the whole text
			end = len(s)
		}
		if slashes { // the user of a URL
			return address{text: clip("//" + s), kind: KindURL}, true
		}
		a := address{text: clip(s[:end]), kind: KindAddress}
		if s == mail && followsHost(s[i+1:]) {
			a.whole = clip(s)
		}
		return a, true
	}
	sure := end < len(s) || slashes
	if i := strings.IndexAny(s[:end], "#&"); i > 0 { // a fragment, or the end of a shell's command
		end = i
		if s[i] == '&' {
			s = s[:i]
		}
	}
	host, _, _ := strings.Cut(s[:end], "::") // of rsync
	if i := strings.LastIndexByte(host, ':'); i > 0 {
		sure = sure || isPort(host[:i], host[i+1:])
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".") // of the root
	if isHexIPv4(host, slashes || host != s) || slashes && isNumericIPv4(host) || isBareIPv4(host, s[len(host):]) {
		return address{text: host, host: host, kind: KindURL}, true
	}
	if !isHost(host, sure || strings.HasPrefix(host, "www.")) {
		return address{}, false
	}
	return urlOf(s), true
}

// withoutPrefix returns an address without what says which kind it is, and whether it was the beginning of a URL.
func withoutPrefix(s string) (rest string, isURL bool) {
	for _, prefix := range []string{"mailto:", "sip:", "xmpp:"} {
		s = strings.TrimPrefix(s, prefix)
	}
	rest = s
	for _, prefix := range []string{"wss:", "ws:", "ftp:", "//", "/dev/tcp/", "/dev/udp/"} {
		rest = strings.TrimPrefix(rest, prefix)
	}
	if rest == s {
		return s, false
	}
	return strings.TrimLeft(rest, "/"), true
}

// addresses examines the addresses in a text, folded from value, and reports whether the whole text is one address. If
// isURL is set, the text counts as a URL, with what would end one in running text: programs that fetch encode a space,
// for example, as a part of the path.
func (s *search) addresses(pointer, value, folded string, isURL bool) (whole bool) {
	var first address
	eachAddress(folded, s.reader.split(folded), func(a address) bool {
		if first.text == "" {
			first = a
		}
		part := !covers(a, folded)
		whole = whole || !part
		if isURL {
			a.kind = KindURL // user@b.example is user and host there
		}
		s.address(pointer, spelled(value, folded, a.text), a, part)
		return !s.cut
	})
	if text := strings.Trim(folded, "<>{} "); text != "" && !whole && (isURL || goesOn(text, first)) {
		a := urlOf(text)
		s.address(pointer, spelled(value, folded, a.text), a, false)
	}
	return whole || isURL
}

// covers reports whether an address is all of a text.
func covers(a address, folded string) bool {
	if len(folded) > 2*len(a.text)+16 {
		return false
	}
	rest := strings.Trim(folded, " .,;:<>()\"'/")
	if _, after, ok := strings.Cut(rest, "://"); ok {
		rest = after
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "mailto:"), "www.")
	return rest == a.text || a.kind == KindAddress && strings.NewReplacer(" ", "", "-", "", "+", "", "(", "", ")", "",
		".", "", "/", "").Replace(rest) == a.text
}

func (s *search) address(pointer, shown string, a address, part bool) {
	arg := Argument{Pointer: pointer, Value: shown, Kind: a.kind, Part: part}
	of, ok := s.findTrusted(pointer, named(a.text))
	if !ok {
		of, ok = s.below(pointer, a)
	}
	if !ok {
		if of, ok = s.outside.addresses[a.text]; !ok && s.defined {
			of = s.begun(a)
		}
	}
	s.report(arg, of)
}

// begun returns the origin of the address that an address begins with, or whose host it is below: an order to send
// something names where, and the model adds what.
func (s *search) begun(a address) origin {
	for known, of := range s.outside.addresses {
		under := strings.TrimPrefix(known[strings.LastIndexByte(known, '}')+1:], ".") // https://{what}.b.example
		if n := len(a.host) - len(under); n > 0 && under != "" && a.host[n-1] == '.' && a.host[n:] == under {
			return of
		}
		rest, ok := strings.CutPrefix(a.text, known)
		isOpen := ok && strings.ContainsAny(known, "/?") && !isWord(rune(known[len(known)-1]))
		if isOpen || ok && rest != "" && strings.IndexByte("/?#:", rest[0]) >= 0 {
			return of
		}
	}
	return origin{}
}

func named(text string) func(*index) (origin, bool) {
	return func(x *index) (origin, bool) {
		of, ok := x.addresses[text]
		return of, ok
	}
}

// below returns the source that contains a URL above this one, unless it carries data: a query, or unknown path words.
func (s *search) below(pointer string, a address) (origin, bool) {
	if a.host == "" || a.query || strings.ContainsAny(a.host, "@") {
		return origin{}, false
	}
	return s.findTrusted(pointer, func(x *index) (origin, bool) {
		for _, known := range x.hosts[a.host] {
			rest, ok := strings.CutPrefix(a.text, known.text+"/")
			if ok && !known.query && !leadsElsewhere(rest) && s.knows(pointer, rest) {
				return x.addresses[known.text], true
			}
		}
		return origin{}, false
	})
}

// maxWeak is the maximum number of path words that prove nothing.
const maxWeak = 4

// knows reports whether trusted sources contain all words of the rest of a URL, but for a few that prove nothing.
func (s *search) knows(pointer, rest string) bool {
	plain, err := url.PathUnescape(rest)
	if err != nil {
		return false
	}
	if unfolded(plain) != "" {
		return false
	}
	plain = fold(plain)
	tokens, more := tokensOf(plain, maxNameTokens)
	weak, end := 0, int32(0)
	for _, t := range tokens {
		_, known := s.findTrusted(pointer, func(x *index) (origin, bool) {
			_, ok := x.last[t.hash]
			return origin{}, ok
		})
		if !known {
			if weak++; weak > maxWeak || !weakName(t.text(plain), []token{t}) {
				return false
			}
		}
		if !separates(plain[end:t.start]) {
			return false
		}
		end = t.end
	}
	return !more && separates(plain[end:])
}

// separates reports whether the text between the words of a path carries no data.
func separates(between string) bool {
	return len(between) == 0 || len(between) == 1 && strings.Contains("/.- ", between)
}

// leadsElsewhere reports whether the rest of a URL may lead out of the URL above it: up the path, to a second address,
// or unknown because it is too long.
func leadsElsewhere(rest string) bool {
	return strings.Contains(rest, "..") || strings.Contains(rest, "%2e") || strings.Contains(rest, "://") ||
		strings.ContainsAny(rest, ",;@") || len(rest) > maxBelow
}

// maxBelow is the maximum length of the rest of a URL, in bytes. It is less than the length that is examined.
const maxBelow = maxAddress / 2
