package farhand

// Least of what a token must be that strangers may try to guess.
const (
	minTokenLength   = 16
	minTokenDistinct = 6 // different characters; 16 random hexadecimal digits have fewer once in a hundred thousand
)

// weakToken reports whether a token is easy to guess: short, or long only by repeating itself. It cannot tell a phrase
// from chance; nothing can that sees one token.
func weakToken(token string) bool {
	distinct := make(map[byte]bool)
	for i := range len(token) {
		distinct[token[i]] = true
	}
	return period(token) < minTokenLength || len(distinct) < minTokenDistinct
}

// period returns how long the part is that a text repeats at least twice from its beginning to its end; its length if
// it repeats none.
func period(s string) int {
	for p := 1; p <= len(s)/2; p++ {
		if s[p:] == s[:len(s)-p] {
			return p
		}
	}
	return len(s)
}
