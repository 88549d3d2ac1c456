package bus

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// fieldReader reads the fields of a message from its beginning to its end. Once something does not fit it is broken,
// and everything reads as empty. Strings it returns are parts of the text.
type fieldReader struct {
	text   string // what has not been read yet
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

// fields reads a list of fields, nil when it is empty.
func (r *fieldReader) fields() []string {
	n := r.uvarint()
	if n > uint64(len(r.text)) { // each has a length, of a byte at least
		r.broken = true
	}
	if n == 0 || r.broken {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.field()
	}
	return list
}

// checked returns a field that is JSON. Here it enters the pod.
func (r *fieldReader) checked(text string) registry.JSON {
	value, err := registry.ParseJSON([]byte(text))
	r.broken = r.broken || err != nil
	return value
}

func (r *fieldReader) result() *registry.Result {
	flags := r.byte()
	result := &registry.Result{Success: flags&flagSuccess != 0, Output: r.field(), Error: r.field()}
	if flags&flagStructured != 0 {
		result.Structured = r.checked(r.field())
	}
	if flags&flagParts != 0 {
		result.Parts = r.parts()
	}
	if flags&flagURIs != 0 {
		for i := range result.Parts {
			result.Parts[i].URI = r.field()
		}
	}
	if flags&flagViolations != 0 && json.Unmarshal([]byte(r.field()), &result.Violations) != nil {
		r.broken = true
	}
	if flags&flagWithheld != 0 {
		result.Withheld = r.failure()
	}
	return result
}

// parts reads the parts of a result, of which there are some.
func (r *fieldReader) parts() []registry.Part {
	n := r.uvarint()
	if n == 0 || n > registry.MaxParts {
		r.broken = true
	}
	if r.broken {
		return nil
	}
	parts := make([]registry.Part, n)
	for i := range parts {
		p := &parts[i]
		p.Type, p.MIMEType = registry.PartType(r.field()), r.field()
		p.Name, p.URL = r.field(), r.field()
		if data := r.field(); data != "" {
			p.Data = []byte(data)
		}
		p.Size = r.number()
	}
	return parts
}

func (r *fieldReader) failure() *registry.Error {
	var e registry.Error
	if json.Unmarshal([]byte(r.field()), &e) != nil {
		r.broken = true
	}
	return &e
}

// finished reports whether everything was read and nothing remains.
func (r *fieldReader) finished() bool { return !r.broken && r.text == "" }
