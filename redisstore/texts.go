package redisstore

// text is an argument of a command in memory that is used again (texts). The client library writes it as it is, and
// asks for the string of a key in a cluster.
type text []byte

// MarshalBinary implements encoding.BinaryMarshaler.
func (t *text) MarshalBinary() ([]byte, error) { return *t, nil }

// String implements fmt.Stringer.
func (t *text) String() string { return string(*t) }

// texts makes arguments that last until reset.
type texts struct {
	bytes []byte // of all
	begun int    // where that which is being made begins
	all   []text
}

// reset takes the memory of all texts back.
func (t *texts) reset() { t.bytes, t.begun, t.all = t.bytes[:0], 0, t.all[:0] }

// text returns what was appended to bytes since the text before.
func (t *texts) text() *text {
	t.all = append(t.all, t.bytes[t.begun:len(t.bytes):len(t.bytes)])
	t.begun = len(t.bytes)
	return &t.all[len(t.all)-1]
}
