package redisstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Calls and their answers are what a busy pod encodes all day, so they do not go through reflection: a version byte,
// flags, and fields with their length in front. Everything else stays JSON.

const (
	flagDurable    = 1 << 0 // of a call
	flagExact      = 1 << 1 // of a call: only the claim of that generation is meant
	flagSuccess    = 1 << 0 // of an answer
	flagStructured = 1 << 1 // of an answer: it has structured output
)

var errNotJSON = errors.New("not valid JSON")

// encodeCall encodes an envelope of kind call.
func encodeCall(e registry.Envelope) ([]byte, error) {
	if !strictjson.Valid(e.Args) {
		return nil, errNotJSON
	}
	b := make([]byte, 0, 64+len(e.Args)+len(e.CallID)+len(e.Session)+len(e.Tool)+len(e.ReplyTo))
	b = append(b, messageCall, byte(e.V), flags(flagDurable, e.Durable)|flags(flagExact, e.Exact))
	for _, field := range []string{e.CallID, e.ReplyTo, e.Tenant, e.Session, e.Tool} {
		b = appendField(b, field)
	}
	b = binary.AppendVarint(b, e.Generation)
	b = binary.AppendVarint(b, e.TimeoutMS)
	return appendField(b, e.Args), nil
}

// spareText is how long a message may be that stays in memory for the ids in it.
const spareText = 1 << 10

// decodeCall is the inverse of encodeCall. Whom to tell about a version that is not known stands where every version
// has it.
func decodeCall(text string) (*registry.Envelope, error) {
	r := fieldReader{text: text}
	version, flagged := r.byte(), r.byte()
	e := registry.Envelope{
		V: int(version), Kind: registry.EnvelopeCall, Durable: flagged&flagDurable != 0, Exact: flagged&flagExact != 0,
		CallID: r.field(), ReplyTo: r.field(),
	}
	if e.V != registry.EnvelopeVersion && !r.broken {
		return nil, &badMessage{
			callID: e.CallID, replyTo: e.ReplyTo, version: e.V,
			cause: fmt.Errorf("call of version %d, only %d is known", e.V, registry.EnvelopeVersion),
		}
	}
	e.Tenant, e.Session, e.Tool = r.field(), r.field(), r.field()
	e.Generation, e.TimeoutMS = r.number(), r.number()
	e.Args = json.RawMessage(r.field())
	if len(text) > spareText { // what is kept while the device works must not keep the arguments
		e.CallID, e.ReplyTo = strings.Clone(e.CallID), strings.Clone(e.ReplyTo)
	}
	if !r.finished() || !strictjson.Valid(e.Args) {
		return nil, &badMessage{callID: e.CallID, replyTo: e.ReplyTo, cause: errors.New("call that is cut short or garbled")}
	}
	return &e, nil
}

// encodeAnswer encodes a reply that is a result.
func encodeAnswer(r registry.Reply) ([]byte, error) {
	res := r.Result
	if res.Structured != nil && !strictjson.Valid(res.Structured) {
		return nil, errNotJSON
	}
	b := make([]byte, 0, 64+len(r.CallID)+len(r.Session)+len(res.Output)+len(res.Structured)+len(res.Error))
	b = append(b, messageAnswer, byte(r.V), flags(flagSuccess, res.Success)|flags(flagStructured, res.Structured != nil))
	for _, field := range []string{r.CallID, r.Tenant, r.Session, res.Output, res.Error} {
		b = appendField(b, field)
	}
	return appendField(b, res.Structured), nil
}

func decodeAnswer(text string) (*registry.Reply, error) {
	f := fieldReader{text: text}
	version, flagged := f.byte(), f.byte()
	if version != registry.EnvelopeVersion && !f.broken {
		return nil, &badMessage{version: int(version), cause: fmt.Errorf("answer of unknown version %d", version)}
	}
	r := registry.Reply{V: int(version), CallID: f.field(), Tenant: f.field(), Session: f.field()}
	res := registry.Result{Success: flagged&flagSuccess != 0, Output: f.field(), Error: f.field()}
	structured := f.field()
	if flagged&flagStructured != 0 {
		res.Structured = json.RawMessage(structured)
	}
	if !f.finished() || r.CallID == "" || res.Structured != nil && !strictjson.Valid(res.Structured) {
		return nil, &badMessage{cause: errors.New("answer that is cut short or garbled")}
	}
	r.Result = &res
	return &r, nil
}

func flags(bit byte, set bool) byte {
	if set {
		return bit
	}
	return 0
}

func appendField[T string | json.RawMessage](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

// fieldReader takes fields off a message. Once something does not fit it is broken, and everything reads as empty.
type fieldReader struct {
	text   string
	broken bool
}

func (r *fieldReader) byte() byte {
	if r.text == "" {
		r.broken = true
		return 0
	}
	c := r.text[0]
	r.text = r.text[1:]
	return c
}

func (r *fieldReader) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.broken = true
	return 0
}

// number reads a signed number, zigzag-encoded.
func (r *fieldReader) number() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *fieldReader) field() string {
	n := r.uvarint()
	if r.broken || n > uint64(len(r.text)) {
		r.broken = true
		return ""
	}
	field := r.text[:n]
	r.text = r.text[n:]
	return field
}

// finished reports whether everything was read and nothing is left.
func (r *fieldReader) finished() bool { return !r.broken && r.text == "" }
