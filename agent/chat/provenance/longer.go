package provenance

import (
	"strings"
	"unicode"
)

// maxUser is how much text after a host name may belong to the user part of a URL, in bytes.
const maxUser = 256

// eachLongURL calls visit with the longer reading of each URL in folded text that programs read in two ways. Some end
// a URL at a space or quote. Browsers go on: to an '@', behind which the host stands, or with the path.
func eachLongURL(s string, visit func(address) bool) bool {
	chunk := 0 // end of the current text without spaces
	for at := 0; ; {
		i := strings.Index(s[at:], "//")
		if i < 0 {
			return true
		}
		begin := at + i + len("//")
		at = begin
		for chunk < len(s) && (chunk < begin || !endsChunk(s[chunk])) {
			chunk++
		}
		if !beginsURL(s, begin-len("//")) {
			continue
		}
		for _, end := range [...]int{userEnd(s, begin), pathEnd(s, begin, chunk)} {
			if end > 0 && !visit(address{text: clip(strings.TrimPrefix(s[begin:end], "www.")), kind: KindURL}) {
				return false
			}
		}
	}
}

// beginsURL reports whether slashes are those of a URL, and not those in a path.
func beginsURL(s string, slashes int) bool {
	return slashes == 0 || s[slashes-1] == ':' || innerSlashes(s[slashes-1:slashes+2], 1) > 0
}

// hostEnd returns the end of the host name that begins at begin, which is begin if there is none.
func hostEnd(s string, begin int) int {
	end := begin
	for end < min(len(s), begin+maxUser) && inHost(s[end]) {
		end++
	}
	return end
}

func inHost(b byte) bool { return b >= 0x80 || isWord(rune(b)) || b == '.' || b == '-' }

func namesHost(s string) bool {
	s = strings.Trim(s, ".-")
	return s == "localhost" || isNumericIPv4(s) || isHexIPv4(s, true) || isHost(s, true)
}

// userEnd returns the end of the host behind an '@' if a space stands between the host name at begin and the '@', else
// zero. A mailbox that follows a URL in running text is no part of it: a path or port must follow, or the URL is all
// of the text.
func userEnd(s string, begin int) int {
	first := hostEnd(s, begin)
	user := s[first:min(len(s), first+maxUser)]
	if i := strings.IndexAny(user, "/?#"); i >= 0 {
		user = user[:i]
	}
	i := strings.LastIndexByte(user, '@')
	space := strings.LastIndexAny(user[:max(i, 0)], " \t\r\n")
	if i < 0 || space < 0 || !namesHost(s[begin:first]) {
		return 0
	}
	at := first + i + 1
	end := hostEnd(s, at)
	alone := begin <= len("https://") && !strings.ContainsAny(s[end:], " \t\r\n") && len(strings.Fields(user[:i])) < 2
	switch {
	case alone:
	case !namesHost(s[at:end]):
		return 0
	case strings.ContainsFunc(user[space:i], isWord): // perhaps a mailbox
		if end == len(s) || strings.IndexByte("/?#:", s[end]) < 0 {
			return 0
		}
	}
	return end
}

// tags are tags of HTML that often follow a URL.
const tags = " a b br code div em h1 h2 h3 hr i img li ol p pre small span strong sub sup table td th tr u ul "

// pathEnd returns the end of the word that belongs to the path of the URL at begin if a character that is usual around
// URLs, but means a path to browsers, stands before it at chunk; else zero.
func pathEnd(s string, begin, chunk int) int {
	if chunk+1 >= len(s) || chunk-begin > maxAddress || strings.IndexByte("\\|<>\"`{}\t\r\n", s[chunk]) < 0 ||
		closes(s[max(0, begin-maxUser):begin], s[chunk]) || strings.IndexByte(",;:!?()[]'*=", s[chunk-1]) >= 0 ||
		!namesHost(s[begin:hostEnd(s, begin)]) {
		return 0
	}
	next, before := s[chunk+1], byte(0)
	for i := begin; i > max(0, begin-len("https://")-1) && strings.IndexByte(" \t\r\n<[|", before) < 0; {
		i--
		before = s[i]
	}
	end := chunk + 1
	for end < len(s) && (isWord(rune(s[end])) || s[end] >= 0x80) {
		end++
	}
	switch word := s[chunk+1 : end]; {
	case s[chunk] < ' ': // browsers drop tabs and line breaks
		if strings.IndexByte("/?:.", next) < 0 && (word == "" || !isOneWord(s, begin)) {
			return 0
		}
	case word == "" && next != '.' && next != '%':
		return 0
	case s[chunk] == '<' && strings.Contains(tags, " "+word+" "),
		s[chunk] == '|' && (before == '<' || before == '[' || before == '|'): // the text of a link, or of a cell
		return 0
	case s[chunk] == '\\' && strings.IndexByte("nrt", next) >= 0 &&
		strings.ContainsAny(s[max(0, begin-maxUser):begin], `"'`):
		return 0 // a line break in a quoted text
	}
	return min(max(end, chunk+2), begin+maxAddress)
}

// closes reports whether a bracket closes one in the text before it.
func closes(before string, bracket byte) bool {
	return bracket == '>' && strings.IndexByte(before, '<') >= 0 ||
		bracket == '}' && strings.IndexByte(before, '{') >= 0
}

// isOneWord reports whether a text is only the URL at begin, with tabs or line breaks in it.
func isOneWord(s string, begin int) bool {
	return begin <= len("https://") && strings.IndexByte(s, ' ') < 0 && !strings.Contains(s[begin:], "//")
}

// goesOn reports whether a text is one word that begins with a URL without a scheme, which ends earlier in running
// text.
func goesOn(s string, first address) bool {
	return first.kind == KindURL && first.host != "" && strings.IndexByte(s, '/') >= 0 &&
		!strings.Contains(s, "://") && strings.HasPrefix(strings.TrimPrefix(s, "www."), first.host) &&
		!strings.ContainsFunc(s, unicode.IsSpace)
}
