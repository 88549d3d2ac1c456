package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// Imported says what an import did, in keys.
type Imported struct {
	Written Exported // were missing, or parts of them were
	Same    Exported // are there already
	Kept    Exported // have another value in the store, which stays
	Expired Exported // have expired since the export
}

// importBatch is how many bytes of values are sent at a time, and about what an import has in memory.
const importBatch = 4 << 20

// CheckExport reads an export to its end, and changes nothing. It fails if the export is not whole, or of a newer
// release.
func CheckExport(r io.Reader) error {
	return readExport(r, func(exportRecord, exportedKeys) error { return nil })
}

// Import writes an export into the store. What is there already stays: an import can be repeated, and adds to a fleet
// that runs. A document or a conversation with another value stays too, unless overwrite is set; one that was deleted
// since the export is written again. Check the export first.
func (c *Conn) Import(ctx context.Context, r io.Reader, overwrite bool) (Imported, error) {
	m := &importer{conn: c.conn, overwrite: overwrite, now: time.Now().UnixMilli(), done: Imported{
		Written: make(Exported), Same: make(Exported), Kept: make(Exported), Expired: make(Exported),
	}}
	err := readExport(r, func(record exportRecord, form exportedKeys) error { return m.add(ctx, record, form) })
	if err == nil {
		err = m.flush(ctx)
	}
	if err == nil {
		err = m.endStream(ctx)
	}
	return m.done, err
}

// readExport calls each for every record.
func readExport(r io.Reader, each func(exportRecord, exportedKeys) error) error {
	in := json.NewDecoder(r)
	var head exportHead
	if err := in.Decode(&head); err != nil || head.Farhand != "export" {
		return errExport("its beginning is not readable (%w)", cmp.Or(err, errors.New("another file")))
	}
	if head.Version > exportVersion {
		return fmt.Errorf("a newer release made this export (version %d, this one reads %d): import it "+
			"with that release",
			head.Version, exportVersion)
	}
	for n := 0; ; n++ {
		var line exportLine
		if err := in.Decode(&line); err != nil {
			return errExport("line %d: %w", n+2, err)
		}
		if line.Records != nil {
			if *line.Records != n {
				return errExport("%d of %d records", n, *line.Records)
			}
			if _, err := in.Token(); !errors.Is(err, io.EOF) {
				return errExport("something follows its end")
			}
			return nil
		}
		form, ok := exportedAs(line.Key)
		if !ok || len(line.Items) == 0 || line.Expires <= 0 {
			return errExport("line %d has no key that an export has", n+2)
		}
		if err := each(line.exportRecord, form); err != nil {
			return err
		}
	}
}

// importer writes records in batches.
type importer struct {
	conn      *redisconn.Conn
	overwrite bool
	now       int64 // Unix ms
	done      Imported

	pipe  *redisconn.Pipeline
	batch []importing
	bytes int

	stream *streamImport // is being copied

	lastKey  string // that was counted
	lastSame bool   // as there already
}

// importing is a record of a batch.
type importing struct {
	key     string
	form    exportedKeys
	command *redisconn.Command
}

func (m *importer) add(ctx context.Context, r exportRecord, form exportedKeys) error {
	if m.stream != nil && m.stream.key != r.Key {
		if err := m.endStream(ctx); err != nil {
			return err
		}
	}
	switch {
	case r.Expires <= m.now:
		if m.lastKey != r.Key {
			m.lastKey, m.lastSame = r.Key, false
			m.done.Expired[form.what]++
		}
		return nil
	case form.kind == "stream":
		return m.addEntries(ctx, r, form)
	}
	if m.pipe == nil {
		m.pipe = m.conn.Pipeline()
	}
	script, args := scriptImportWhole, []any{form.kind, r.Expires, flag(m.overwrite)}
	if form.kind == "zset" || form.kind == usageType {
		script, args = scriptImportMerge, []any{form.kind, r.Expires}
	}
	for _, item := range r.Items {
		for _, text := range item {
			args, m.bytes = append(args, text), m.bytes+len(text)
		}
	}
	m.batch = append(m.batch, importing{r.Key, form, m.pipe.Eval(script, []string{r.Key}, args...)})
	if form.what == "conversations" && form.kind == "zset" { // lists of conversations are read again
		m.pipe.Do("SET", r.Key+":version", rand.Text(), "PXAT", r.Expires)
	}
	if m.bytes >= importBatch || len(m.batch) >= redisconn.MaxPipeline/2 {
		return m.flush(ctx)
	}
	return nil
}

// flush sends the batch.
func (m *importer) flush(ctx context.Context) error {
	if m.pipe == nil {
		return nil
	}
	if err := m.pipe.Exec(ctx); err != nil {
		return err
	}
	for _, i := range m.batch {
		m.count(i.key, i.form.what, i.command.Int())
	}
	m.pipe, m.batch, m.bytes = nil, nil, 0
	return nil
}

// count counts a key once, though it may have several records, which follow each other: as written, if one of them was.
func (m *importer) count(key, what string, written int64) {
	if key == m.lastKey {
		if written <= 0 || !m.lastSame {
			return
		}
		if m.done.Same[what]--; m.done.Same[what] == 0 {
			delete(m.done.Same, what)
		}
	}
	m.lastKey, m.lastSame = key, written == 0
	switch {
	case written > 0:
		m.done.Written[what]++
	case written == 0:
		m.done.Same[what]++
	default:
		m.done.Kept[what]++
	}
}

// streamImport is a stream whose entries are copied beside it. New entries cannot be put before others, so in the end
// the newer ones of the store follow them, and the copy replaces the stream.
type streamImport struct {
	key, copy string
	form      exportedKeys
	expires   int64
	last      string // id
	entries   int
	lines     int
	bytes     int
}

// streamCopyLife is how long a copy stays that an import does not end.
const streamCopyLife = 10 * time.Minute

func (m *importer) addEntries(ctx context.Context, r exportRecord, form exportedKeys) error {
	pipe := m.conn.Pipeline()
	if m.stream == nil {
		tag, _, _ := strings.Cut(r.Key[strings.Index(r.Key, "{")+1:], "}")
		m.stream = &streamImport{key: r.Key, copy: "fh:{" + tag + "}:import", form: form, expires: r.Expires}
		pipe.Do("DEL", m.stream.copy)
	}
	for _, item := range r.Items {
		if len(item) < 3 {
			return errExport("an entry of %s has no fields", r.Key)
		}
		command := []any{"XADD", m.stream.copy}
		for _, text := range item {
			command = append(command, text)
		}
		pipe.Do(command...)
		text := item[len(item)-1]
		m.stream.last = string(item[0])
		m.stream.entries++
		m.stream.lines, m.stream.bytes = m.stream.lines+bytes.Count(text, []byte("\n")), m.stream.bytes+len(text)
	}
	pipe.Do("PEXPIRE", m.stream.copy, streamCopyLife.Milliseconds())
	return pipe.Exec(ctx)
}

// endStream replaces the stream by its copy, unless the store has all of it, or has entries of that time that the copy
// lacks.
func (m *importer) endStream(ctx context.Context) error {
	s := m.stream
	if s == nil {
		return nil
	}
	m.stream = nil
	there, others, err := m.compare(ctx, s)
	switch {
	case err != nil:
		return err
	case others || there == s.entries:
		count := m.done.Same
		if others {
			count = m.done.Kept
		}
		count[s.form.what]++
		_, err := m.conn.Do(ctx, "DEL", s.copy)
		return err
	}
	missing := s.entries - there
	lines, size := s.lines*missing/s.entries, s.bytes*missing/s.entries // about
	for {
		c, err := m.conn.Eval(ctx, scriptImportStream, []string{s.key, s.copy, s.key + ":size"}, s.expires, lines, size)
		if err != nil {
			return err
		}
		if c.Int() == 1 {
			m.done.Written[s.form.what]++
			return nil
		}
	}
}

// compare returns how many entries of the copy the stream has, and whether it has others of that time.
func (m *importer) compare(ctx context.Context, s *streamImport) (there int, others bool, err error) {
	for from := "-"; ; {
		c, err := m.conn.Do(ctx, "XRANGE", s.key, from, s.last, "COUNT", exportPart)
		if err != nil {
			return 0, false, err
		}
		items, after, err := s.form.items(c)
		if err != nil || len(items) == 0 {
			return there, others, err
		}
		pipe := m.conn.Pipeline()
		found := make([]*redisconn.Command, len(items))
		for i, item := range items {
			found[i] = pipe.Do("XRANGE", s.copy, string(item[0]), string(item[0]))
		}
		if err := pipe.Exec(ctx); err != nil {
			return 0, false, err
		}
		if slices.ContainsFunc(found, func(c *redisconn.Command) bool { return len(c.List()) == 0 }) {
			return there, true, nil
		}
		there, from = there+len(items), "("+after
	}
}
