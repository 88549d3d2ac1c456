package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// lineScan counts the lines of a text, and keeps some of them. A line feed ends a line; what stands behind the last one
// is a line, too.
type lineScan struct {
	first, limit int64 // lines that are skipped, and kept at most; a limit of zero: all

	total    int64
	returned int64
	full     bool // maxContent was reached
	open     bool // the last line has not ended yet
	partial  bool // of the last line that is kept the end is left out
	kept     []byte
}

// readAll reads a text to its end.
func (s *lineScan) readAll(ctx context.Context, r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		s.add(buf[:n])
		switch {
		case errors.Is(err, io.EOF):
			if s.open {
				s.total++
			}
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

func (s *lineScan) add(text []byte) {
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n') + 1
		s.open = end == 0
		if s.open {
			end = len(text)
		}
		if s.total >= s.first && (s.limit == 0 || s.total < s.first+s.limit) {
			s.keep(text[:end])
		}
		if !s.open {
			s.total++
		}
		text = text[end:]
	}
}

// keep keeps a piece of a line, as long as there is room.
func (s *lineScan) keep(piece []byte) {
	if s.full {
		return
	}
	room := maxContent - len(s.kept)
	s.full = len(piece) > room
	s.kept = append(s.kept, piece[:min(len(piece), room)]...)
}

// content returns the lines that were kept: whole ones, unless not even the first one fits.
func (s *lineScan) content() string {
	if s.full {
		if end := bytes.LastIndexByte(s.kept, '\n') + 1; end > 0 {
			s.kept = s.kept[:end]
		} else {
			s.partial = true
			for i := 0; i < utf8.UTFMax && !utf8.Valid(s.kept); i++ { // a character that was cut in two
				s.kept = s.kept[:len(s.kept)-1]
			}
		}
	}
	s.returned = int64(bytes.Count(s.kept, []byte{'\n'}))
	if len(s.kept) > 0 && s.kept[len(s.kept)-1] != '\n' {
		s.returned++
	}
	return string(s.kept)
}

// words is the content, with what else there is to know in brackets behind it.
func (s *lineScan) words(content string) string {
	switch {
	case s.total == 0:
		return "[the file is empty]"
	case s.partial:
		return content + fmt.Sprintf("\n[the beginning of line %d of %d, which is too long to be shown]",
			s.first+1, s.total)
	case s.returned == s.total:
		return content
	}
	if content != "" && content[len(content)-1] != '\n' {
		content += "\n"
	}
	more := ""
	if last := s.first + s.returned; last < s.total {
		more = fmt.Sprintf("; read on with offset %d", last)
	}
	return content + fmt.Sprintf("[lines %d to %d of %d%s]", s.first+1, s.first+s.returned, s.total, more)
}
