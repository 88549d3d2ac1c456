package provenance

import (
	"strconv"
	"strings"
)

// eachSpelling calls visit with the parts of a text that programs read as another text, until visit returns false: JSON
// escapes, escaped dots, backslashes as slashes, curl's alternatives, and line breaks and tabs inside links, which
// browsers drop.
func eachSpelling(text string, visit func(plain string) bool) {
	if strings.ContainsAny(text, `\{[`) {
		for word := range strings.FieldsFuncSeq(text, endsWord) {
			for _, plain := range [...]string{
				withoutEscapes(word), withoutDots(word), withSlashes(word), withoutGlobs(word),
			} {
				if plain != "" && !visit(plain) {
					return
				}
			}
		}
	}
	if strings.ContainsAny(text, "\t\r\n") {
		eachBrokenLink(text, visit)
	}
}

func endsWord(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'`<>()|=", r) }

// withoutEscapes returns a word without the escapes of JSON, empty if it has none that hide an address. Browsers drop
// the line breaks and tabs that some stand for.
func withoutEscapes(word string) string {
	if !strings.Contains(word, `\/`) && !strings.Contains(word, `\u`) {
		return ""
	}
	var out strings.Builder
	for at := 0; at < len(word); at++ {
		if word[at] != '\\' || at+1 == len(word) {
			out.WriteByte(word[at])
			continue
		}
		at++
		switch word[at] {
		case 'u':
			if code, err := strconv.ParseUint(word[at+1:min(at+5, len(word))], 16, 16); err == nil {
				out.WriteRune(rune(code))
				at += 4
			}
		case 'n', 'r', 't':
		default:
			out.WriteByte(word[at])
		}
	}
	return out.String()
}

// withoutDots returns a word with escaped dots, as Markdown and shells write them, as plain ones, else "".
func withoutDots(word string) string {
	if !strings.Contains(word, `\.`) {
		return ""
	}
	return strings.ReplaceAll(word, `\.`, ".")
}

// webSchemes are the schemes after which browsers need no slashes, and take backslashes for them.
var webSchemes = []string{"https:", "http:", "wss:", "ws:", "ftp:"}

// withSlashes returns a word that begins like a URL or a UNC path with slashes in place of backslashes, else "".
func withSlashes(word string) string {
	scheme := ""
	for _, s := range webSchemes {
		if len(word) > len(s) && strings.EqualFold(word[:len(s)], s) {
			scheme = s
		}
	}
	rest := strings.TrimLeft(word[len(scheme):], `\/`)
	begin := word[len(scheme) : len(word)-len(rest)]
	if !strings.Contains(begin, `\`) || len(begin) < 2 && scheme == "" {
		return ""
	}
	host, path, further := rest, "", false
	if i := strings.IndexAny(rest, `\/:@?#`); i >= 0 {
		host, path, further = rest[:i], rest[i:], true
	}
	if path != "" && path[0] == '@' && scheme == "" { // the port of WebDAV
		path = path[max(strings.IndexAny(path, `\/`), 0):]
	}
	folded := fold(clip(host))
	switch {
	case scheme != "":
	case begin == `\/` && strings.Contains(path, `\/`): // a path in JSON
		return ""
	case !isNumericIPv4(folded) && !isHost(folded, further || strings.Count(folded, ".") > 1):
		return ""
	}
	return scheme + "//" + host + strings.ReplaceAll(path, `\`, "/")
}

// maxGlob is the maximum length of a glob that is expanded, in bytes.
const maxGlob = 256

// withoutGlobs returns a word with the first text of each glob of curl in a host name, such as {a,b} and [1-9], empty
// if it has none.
func withoutGlobs(word string) string {
	var out strings.Builder
	found := false
	for at := 0; at < len(word); {
		open := strings.IndexAny(word[at:], "{[")
		if open < 0 {
			out.WriteString(word[at:])
			break
		}
		open += at
		out.WriteString(word[at:open])
		at = open + 1
		inner, after, ok := strings.Cut(word[at:min(len(word), at+maxGlob)], string(word[open]+2)) // its closing pair
		if !ok || strings.ContainsAny(inner, `{["`) {
			continue
		}
		first, more := inner, false
		if word[open] == '[' {
			first, _, more = strings.Cut(inner, "-")
		}
		hosts := strings.Contains(inner, ".") || strings.HasPrefix(after, ".") ||
			open > 0 && word[open-1] == '.'
		if !hosts || word[open] == '[' && !more {
			continue
		}
		if word[open] == '{' {
			first, _, _ = strings.Cut(inner, ",")
		}
		out.WriteString(first)
		at, found = at+len(inner)+1, true
	}
	if !found {
		return ""
	}
	return out.String()
}

// eachBrokenLink calls visit with the links of HTML, CSS and Markdown that have line breaks or tabs, without them,
// until visit returns false. Of a link, up to maxAddress bytes count.
func eachBrokenLink(text string, visit func(plain string) bool) {
	gap := 0 // the next line break or tab
	for at := 0; at < len(text); at++ {
		var end byte
		switch {
		case text[at] == '=':
		case text[at] != '(':
			continue
		case at >= 1 && text[at-1] == ']', at >= 3 && strings.EqualFold(text[at-3:at], "url"):
			end = ')'
		default:
			continue
		}
		begin := at + 1
		for begin < len(text) && text[begin] <= ' ' {
			begin++
		}
		at = begin - 1
		if begin < len(text) && strings.IndexByte("\"'<", text[begin]) >= 0 {
			if end = text[begin]; end == '<' {
				end = '>'
			}
			begin++
		}
		if gap = max(gap, begin); end == 0 || gap-begin > maxAddress {
			continue
		}
		for gap < len(text) && text[gap] != '\t' && text[gap] != '\r' && text[gap] != '\n' {
			gap++
		}
		if gap == len(text) {
			return
		}
		if gap-begin > maxAddress || strings.IndexByte(text[begin:gap], end) >= 0 {
			continue
		}
		if link := joined(text[begin:], end); beginsLink(link) && !visit(link) {
			return
		}
	}
}

// joined returns the beginning of a text up to a character, without tabs and line breaks, maxAddress bytes at most.
func joined(text string, end byte) string {
	var out strings.Builder
	for i := 0; i < len(text) && text[i] != end && out.Len() < maxAddress; i++ {
		if b := text[i]; b != '\t' && b != '\r' && b != '\n' && (b > ' ' || out.Len() > 0) {
			out.WriteByte(b)
		}
		if out.Len() == len("javascript:") && !beginsLink(out.String()) {
			break
		}
	}
	return strings.TrimSpace(out.String())
}

// beginsLink reports whether a link begins with a scheme or a host, and not with a path.
func beginsLink(link string) bool {
	if len(link) > 1 && strings.IndexByte(`\/`, link[0]) >= 0 && strings.IndexByte(`\/`, link[1]) >= 0 {
		return true
	}
	i := 0
	for i < len(link) && (isWord(rune(link[i])) || link[i] == '+' || link[i] == '-') {
		i++
	}
	return i > 0 && i < len(link) && link[i] == ':'
}

// unbroken returns a URL without line breaks and tabs.
func unbroken(link string) string {
	return strings.TrimSpace(strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(link))
}

// isBroken reports whether a text is nothing but a URL with tabs or line breaks in it. A blank line ends a URL.
func isBroken(s string) bool {
	if !strings.ContainsAny(s, "\t\r\n") || strings.IndexByte(s, ' ') >= 0 || strings.Contains(s, "\n\n") {
		return false
	}
	s = unbroken(s)
	i := strings.Index(s, "//")
	return i >= 0 && strings.LastIndex(s, "//") == i && (i == 0 || s[i-1] == ':' && beginsLink(s))
}

// spelled returns the spelling of a part of a folded text in the original text, because paths are case-sensitive.
func spelled(value, folded, part string) string {
	value = strings.TrimSpace(value)
	if i := strings.Index(folded, part); i >= 0 && len(value) == len(folded) && fold(value[i:i+len(part)]) == part {
		return value[i : i+len(part)]
	}
	return part
}
