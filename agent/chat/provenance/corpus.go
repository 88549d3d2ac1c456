package provenance

// corpus finds phrases in texts. It keeps a hash of each token, and for each hash the chain of its places.
type corpus struct {
	hashes []uint64
	joined []bool
	before []int32 // the place before of the same hash; -1: none
	last   map[uint64]place
	texts  []textStart
}

// place is where a token was last seen, and how often it was.
type place struct{ at, count int32 }

type textStart struct {
	at int32 // of the first token
	of origin
}

// origin is a text.
type origin struct {
	source Source
	id     string
}

// add adds the tokens of a text.
func (c *corpus) add(of origin, tokens []token) {
	if c.last == nil {
		c.last = make(map[uint64]place, len(tokens)/4)
	}
	c.texts = append(c.texts, textStart{int32(len(c.hashes)), of})
	for _, t := range tokens {
		c.push(t.hash, t.joined)
	}
	c.push(0, false) // no phrase reaches from one text into the next
}

func (c *corpus) push(hash uint64, joined bool) {
	p, seen := c.last[hash]
	before := int32(-1)
	if seen {
		before = p.at
	}
	c.last[hash] = place{int32(len(c.hashes)), p.count + 1}
	c.hashes, c.joined, c.before = append(c.hashes, hash), append(c.joined, joined), append(c.before, before)
}

// find returns the oldest text that has the phrase. With whole, a phrase that is a part of a longer word does not
// count. Each comparison takes one from budget; found is false, and budget negative, when that is used up.
func (c *corpus) find(phrase []token, whole bool, budget *int) (of origin, found bool) {
	if len(phrase) == 0 {
		return origin{}, false
	}
	rare, least := 0, int32(0)
	for i, t := range phrase {
		p, ok := c.last[t.hash]
		if !ok {
			return origin{}, false
		}
		if least == 0 || p.count < least {
			rare, least = i, p.count
		}
	}
	first := int32(-1)
	for at := c.last[phrase[rare].hash].at; at >= 0; at = c.before[at] {
		if *budget--; *budget < 0 {
			return origin{}, false
		}
		if c.matches(at-int32(rare), phrase, whole, budget) {
			first = at
		}
	}
	if first < 0 {
		return origin{}, false
	}
	return c.textOf(first), true
}

func (c *corpus) matches(at int32, phrase []token, whole bool, budget *int) bool {
	end := at + int32(len(phrase))
	if at < 0 || int(end) > len(c.hashes) {
		return false
	}
	for i, t := range phrase {
		if c.hashes[at+int32(i)] != t.hash {
			*budget -= i
			return false
		}
	}
	*budget -= len(phrase)
	return !whole || !c.joined[at] && !(int(end) < len(c.joined) && c.joined[end])
}

// textOf returns the text that has the token at a place.
func (c *corpus) textOf(at int32) origin {
	low, high := 0, len(c.texts)
	for high-low > 1 {
		if mid := (low + high) / 2; c.texts[mid].at <= at {
			low = mid
		} else {
			high = mid
		}
	}
	return c.texts[low].of
}
