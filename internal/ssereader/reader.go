// Package ssereader reads streams of server-sent events: the answers of language models in agent/provider, and those of
// a gateway in cmd/farhand.
package ssereader

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLong means that an event is longer than the limit of its Reader.
var ErrTooLong = errors.New("sse: the event is too long")

// Event is one event of a stream.
type Event struct {
	ID   string // of this event; empty: the event has none
	Name string // the value of the field "event"; empty: the event has none
	Data []byte // the data fields, joined by line feeds; valid until the next call of Next
}

// Reader reads events as the HTML standard defines them. It is for one goroutine.
type Reader struct {
	// Grow, if set, is called each time the current event has grown by growStep bytes. Its error ends the reading.
	Grow func(size int) error

	in     *bufio.Reader
	limit  int
	size   int // bytes read since the last empty line
	afterR bool
	begun  bool
	line   []byte
	data   []byte
}

const growStep = 64 << 10

// New returns a reader of events of up to limit bytes each, including comments and the names of fields.
func New(r io.Reader, limit int) *Reader {
	return &Reader{in: bufio.NewReader(r), limit: limit}
}

// Next returns the next event that has data. At the end of the stream the error is io.EOF, and an event without its
// empty line is dropped as incomplete. Other errors are ErrTooLong and those of the underlying reader.
func (r *Reader) Next() (Event, error) {
	var e Event
	fields := 0
	r.data, r.size = r.data[:0], 0
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if fields > 0 {
				e.Data = r.data
				return e, nil
			}
			e, r.size = Event{}, 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":")) // a comment is a field without a name
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			e.ID = string(value)
		case "event":
			e.Name = string(value)
		case "data":
			if fields++; fields > 1 {
				r.data = append(r.data, '\n')
			}
			r.data = append(r.data, value...)
		}
	}
}

// readLine returns the next line without its end, which is a line feed, a carriage return, or both. It looks for a line
// feed after a carriage return only with the next line, because waiting for it would delay an event.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if r.size++; r.size > r.limit {
			return nil, ErrTooLong
		}
		if r.size%growStep == 0 && r.Grow != nil {
			if err := r.Grow(r.size); err != nil {
				return nil, err
			}
		}
		follows := r.afterR && c == '\n'
		r.afterR = c == '\r'
		switch {
		case follows:
		case c == '\n' || c == '\r':
			return r.withoutMark(), nil
		default:
			r.line = append(r.line, c)
		}
	}
}

// withoutMark returns the line. It removes the byte order mark from the first line.
func (r *Reader) withoutMark() []byte {
	if r.begun {
		return r.line
	}
	r.begun = true
	return bytes.TrimPrefix(r.line, []byte("\ufeff"))
}
