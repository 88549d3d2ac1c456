package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/internal/bytesize"
	"github.com/farhand/farhand/registry"
)

const (
	maxContent = 128 << 10 // bytes of lines that one call returns
	sniffed    = 8 << 10   // bytes that are checked for binary content
)

type readArgs struct {
	Path   string `json:"path"`
	Offset whole  `json:"offset"`
	Limit  whole  `json:"limit"`
}

// readAnswer is the answer for a text file.
type readAnswer struct {
	Path          string `json:"path"`
	Content       string `json:"content"`
	TotalLines    int64  `json:"total_lines"`
	ReturnedLines int64  `json:"returned_lines"`
	Offset        int64  `json:"offset"`
	Truncated     bool   `json:"truncated"` // the content was cut off at maxContent
}

// binaryAnswer is the answer for a binary file.
type binaryAnswer struct {
	Path     string `json:"path"`
	Binary   bool   `json:"binary"`
	MIMEType string `json:"mime_type"`
	Bytes    int64  `json:"bytes"`
}

// reader returns the tool read.
func (s session) reader() agent.Tool {
	return fileTool(func(in readArgs) string { return in.Path }, s.read, registry.ToolSpec{
		Name: "read",
		Description: "Read a file of the workspace: its lines, or those selected by limit and " +
			"offset. Pictures are shown.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"Path to the file to read, relative to the workspace"},` +
			`"limit":{"type":"integer","minimum":0,"maximum":1000000000,` +
			`"description":"Maximum number of lines to read; 0 or absent: all"},` +
			`"offset":{"type":"integer","minimum":0,"maximum":1000000000,` +
			`"description":"Number of lines to skip first"}},` +
			`"required":["path"],"additionalProperties":false}`),
		Annotations: &registry.Annotations{ReadOnlyHint: new(true), IdempotentHint: new(true)},
	})
}

func (s session) read(ctx context.Context, in readArgs, p place) (registry.Result, error) {
	root, w, err := s.open(ctx)
	if err != nil {
		return registry.Result{}, err
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	folder, err := (&walker{w: w, root: root}).parent(p)
	if err != nil {
		return registry.Result{}, err
	}
	defer folder.Close() //nolint:errcheck // nothing was written through it
	f, info, err := openRegular(folder, p, w)
	if err != nil {
		return registry.Result{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	most := s.maxBytes(ctx)
	if info.Size() > most {
		return registry.Result{}, tooLarge(p, info.Size(), most)
	}
	return answerRead(ctx, f, info, p, in, most)
}

func tooLarge(p place, size, most int64) error {
	return refuse("%q has %s; at most %s are allowed.", p, bytesize.Format(uint64(size)), bytesize.Format(uint64(most)))
}

// answerRead reads a file once, as a stream, at most most bytes, even if the file grows meanwhile.
func answerRead(
	ctx context.Context, f *os.File, info fs.FileInfo, p place, in readArgs, most int64,
) (registry.Result, error) {
	head := make([]byte, sniffed)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return registry.Result{}, err
	}
	head = head[:n]
	if kind := http.DetectContentType(head); isPicture(kind) || bytes.IndexByte(head, 0) >= 0 {
		return answerBinary(f, info, p, kind)
	}
	s := &lineScan{first: int64(in.Offset), limit: int64(in.Limit)}
	if err := s.readAll(ctx, io.LimitReader(io.MultiReader(bytes.NewReader(head), f), most)); err != nil {
		return registry.Result{}, err
	}
	content := s.content()
	if !utf8.ValidString(content) || strings.ContainsRune(content, 0) {
		return answerBinary(f, info, p, "application/octet-stream")
	}
	if s.first > 0 && s.first >= s.total {
		return registry.Result{}, refuse("%q has only %d lines; the offset is %d.", p, s.total, s.first)
	}
	return localtool.Result(s.words(content), readAnswer{
		Path: p.String(), Content: content, TotalLines: s.total, ReturnedLines: s.returned, Offset: s.first,
		Truncated: s.full,
	})
}

func isPicture(kind string) bool {
	return slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind)
}

// answerBinary describes a binary file, and includes the content if it is a small picture.
func answerBinary(f *os.File, info fs.FileInfo, p place, kind string) (registry.Result, error) {
	text := fmt.Sprintf("%q is a binary file (%s, %d bytes), which is not shown.", p, kind, info.Size())
	var parts []registry.Part
	switch {
	case !isPicture(kind):
	case info.Size() > registry.MaxInlinePart:
		text = fmt.Sprintf("%q is a picture (%s, %d bytes) that is too large to show: at most %d bytes are allowed.",
			p, kind, info.Size(), registry.MaxInlinePart)
	default:
		data, err := io.ReadAll(io.NewSectionReader(f, 0, registry.MaxInlinePart))
		if err != nil {
			return registry.Result{}, err
		}
		parts = []registry.Part{
			{Type: registry.PartImage, MIMEType: kind, Name: p.name, Data: data, Size: int64(len(data))},
		}
		text = fmt.Sprintf("%q is a picture (%s, %d bytes).", p, kind, len(data))
	}
	res, err := localtool.Result(text, binaryAnswer{p.String(), true, kind, info.Size()})
	res.Parts = parts
	return res, err
}

// lineScan counts the lines of a text, and keeps the requested ones. A line feed ends a line. Text after the last line
// feed also counts as a line.
type lineScan struct {
	first, limit int64 // lines to skip, and maximum to keep; limit zero: all

	total    int64
	returned int64
	full     bool // maxContent was reached
	open     bool // the last line has not ended yet
	partial  bool // the end of the last kept line is missing
	text     []byte
}

// readAll reads a text until EOF.
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
			s.appendPiece(text[:end])
		}
		if !s.open {
			s.total++
		}
		text = text[end:]
	}
}

// appendPiece keeps a piece of a line, up to maxContent.
func (s *lineScan) appendPiece(piece []byte) {
	if s.full {
		return
	}
	free := maxContent - len(s.text)
	s.full = len(piece) > free
	s.text = append(s.text, piece[:min(len(piece), free)]...)
}

// content returns the kept lines. It drops an incomplete last line, unless it is the only one.
func (s *lineScan) content() string {
	if s.full {
		if end := bytes.LastIndexByte(s.text, '\n') + 1; end > 0 {
			s.text = s.text[:end]
		} else {
			s.partial = true
			for i := 0; i < utf8.UTFMax && !utf8.Valid(s.text); i++ { // an incomplete UTF-8 character
				s.text = s.text[:len(s.text)-1]
			}
		}
	}
	s.returned = int64(bytes.Count(s.text, []byte{'\n'}))
	if len(s.text) > 0 && s.text[len(s.text)-1] != '\n' {
		s.returned++
	}
	return string(s.text)
}

// words returns the content, followed by notes about it in brackets.
func (s *lineScan) words(content string) string {
	switch {
	case s.total == 0:
		return "[the file is empty]"
	case s.partial:
		return content + fmt.Sprintf("\n[only the beginning of line %d of %d, which is too long]",
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
