package openclaw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// This file reads tables of a SQLite database, also what is only in its write-ahead log. It takes no lock and writes
// nothing: stop the program that writes to the database first. The format is https://sqlite.org/fileformat2.html.

// errCorrupt is the error for a file that is no database, or a damaged one.
var errCorrupt = errors.New("the file is not a SQLite database or is damaged")

// Bounds of a database that is read.
const (
	maxPages  = 1 << 20   // of the file
	maxRows   = 100_000   // of a table
	maxRecord = 16 << 20  // bytes of a row
	maxWAL    = 256 << 20 // bytes of the log
	maxDepth  = 20        // of a tree; SQLite's own limit
)

// database is an open database.
type database struct {
	file     io.ReaderAt
	pageSize int
	usable   int            // bytes of a page without the reserved ones
	pages    int            // in the file and the log
	logged   map[int][]byte // pages that the log has, by number
	stored   int            // pages that exist in the file or the log, at most
	visited  int            // pages that were read for a table, so that damaged links end
}

// openDatabase opens a database and reads its log. Close the file afterwards.
func openDatabase(path string) (*database, *os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	d, err := readDatabase(file, path+"-wal")
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return d, file, nil
}

func readDatabase(file *os.File, wal string) (*database, error) {
	header := make([]byte, 100)
	if _, err := file.ReadAt(header, 0); err != nil || string(header[:16]) != "SQLite format 3\x00" {
		return nil, errCorrupt
	}
	size := int(binary.BigEndian.Uint16(header[16:]))
	if size == 1 {
		size = 1 << 16
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	d := &database{file: file, pageSize: size, usable: size - int(header[20])}
	if size < 512 || size&(size-1) != 0 || d.usable < 480 || binary.BigEndian.Uint32(header[56:]) > 1 {
		return nil, errCorrupt // the last: another encoding than UTF-8
	}
	if d.pages = int(info.Size() / int64(size)); d.pages > maxPages {
		return nil, fmt.Errorf("the database has more than %d pages", maxPages)
	}
	d.stored = d.pages
	text, err := os.ReadFile(wal)
	if errors.Is(err, os.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	if len(text) > maxWAL {
		return nil, fmt.Errorf("%s has more than %d bytes: start and stop the program that writes it", wal, maxWAL)
	}
	err = d.readLog(text)
	d.stored += len(d.logged)
	return d, err
}

const (
	logHeader   = 32
	frameHeader = 24
)

// readLog reads the pages of all transactions that were committed to the log. It ends with the first frame that does
// not fit the ones before, as SQLite does.
func (d *database) readLog(log []byte) error {
	d.logged = make(map[int][]byte)
	if len(log) < logHeader {
		return nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch binary.BigEndian.Uint32(log) {
	case 0x377f0682:
	case 0x377f0683:
		order = binary.BigEndian
	default:
		return errCorrupt
	}
	if int(binary.BigEndian.Uint32(log[8:])) != d.pageSize {
		return errCorrupt
	}
	salts := string(log[16:24])
	var sum checksum
	if sum.add(order, log[:24]); !sum.is(log[24:]) {
		return nil // the log was not begun
	}
	pending := make(map[int][]byte)
	for rest := log[logHeader:]; len(rest) >= frameHeader+d.pageSize; rest = rest[frameHeader+d.pageSize:] {
		page := rest[frameHeader : frameHeader+d.pageSize]
		sum.add(order, rest[:8])
		sum.add(order, page)
		if string(rest[8:16]) != salts || !sum.is(rest[16:]) {
			break
		}
		number, size := int(binary.BigEndian.Uint32(rest)), int(binary.BigEndian.Uint32(rest[4:]))
		pending[number] = page
		if size == 0 {
			continue
		}
		for number, page := range pending {
			d.logged[number] = page
		}
		clear(pending)
		if d.pages = size; size > maxPages {
			return errCorrupt
		}
	}
	return nil
}

// checksum is the running sum over a log.
type checksum struct{ a, b uint32 }

func (c *checksum) add(order binary.ByteOrder, text []byte) {
	for ; len(text) >= 8; text = text[8:] {
		c.a += order.Uint32(text) + c.b
		c.b += order.Uint32(text[4:]) + c.a
	}
}

func (c *checksum) is(stored []byte) bool {
	return c.a == binary.BigEndian.Uint32(stored) && c.b == binary.BigEndian.Uint32(stored[4:])
}

func (d *database) page(number int) ([]byte, error) {
	if d.visited++; number < 1 || number > d.pages || d.visited > 2*d.stored {
		return nil, errCorrupt
	}
	if page, ok := d.logged[number]; ok {
		return page, nil
	}
	page := make([]byte, d.pageSize)
	if _, err := d.file.ReadAt(page, int64(number-1)*int64(d.pageSize)); err != nil {
		return nil, errCorrupt
	}
	return page, nil
}

// row is a row of a table: int64, float64, string, []byte or nil by the names of the columns.
type row map[string]any

func (r row) text(column string) string {
	text, _ := r[column].(string)
	return text
}

// table returns the rows of a table, false if there is none. It reads ordinary tables only.
func (d *database) table(name string) (rows []row, found bool, err error) {
	d.visited = 0
	root, columns := 0, []string(nil)
	err = d.walk(1, 0, func(values []any) error {
		if len(values) >= 5 && values[0] == "table" && values[1] == name {
			page, _ := values[3].(int64)
			sql, _ := values[4].(string)
			root, columns = int(page), columnsOf(sql)
		}
		return nil
	})
	if err != nil || root == 0 {
		return nil, false, err
	}
	err = d.walk(root, 0, func(values []any) error {
		if len(rows) == maxRows {
			return fmt.Errorf("the table %s has more than %d rows", name, maxRows)
		}
		r := make(row)
		for i, v := range values {
			if i < len(columns) {
				r[columns[i]] = v
			}
		}
		rows = append(rows, r)
		return nil
	})
	return rows, true, err
}

// columnsOf returns the names of the columns in a statement that creates a table: the first word of each definition.
func columnsOf(sql string) (names []string) {
	_, body, _ := strings.Cut(sql, "(")
	depth, begins := 0, true
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			begins = true
		case begins && c > ' ':
			end := strings.IndexAny(body[i:], " \t\r\n,()")
			if end < 0 {
				return names
			}
			names, begins = append(names, strings.Trim(body[i:i+end], "\"`[]")), false
			i += end - 1
		}
	}
	return names
}

// walk calls visit with the values of each row of the tree at a page.
func (d *database) walk(number, depth int, visit func(values []any) error) error {
	page, err := d.page(number)
	if err != nil || depth > maxDepth {
		return errors.Join(err, map[bool]error{true: errCorrupt}[depth > maxDepth])
	}
	head := 0
	if number == 1 {
		head = 100
	}
	kind, cells := page[head], int(binary.BigEndian.Uint16(page[head+3:]))
	pointers := head + 8
	if kind == 5 {
		pointers = head + 12
	}
	if kind != 5 && kind != 13 || pointers+2*cells > len(page) {
		return errCorrupt
	}
	for i := range cells {
		at := int(binary.BigEndian.Uint16(page[pointers+2*i:]))
		if at+4 > len(page) {
			return errCorrupt
		}
		if kind == 5 {
			err = d.walk(int(binary.BigEndian.Uint32(page[at:])), depth+1, visit)
		} else {
			err = d.leaf(page, at, visit)
		}
		if err != nil {
			return err
		}
	}
	if kind == 5 {
		return d.walk(int(binary.BigEndian.Uint32(page[head+8:])), depth+1, visit)
	}
	return nil
}

// leaf calls visit with the values of a cell.
func (d *database) leaf(page []byte, at int, visit func(values []any) error) error {
	size, n := varint(page[at:])
	_, m := varint(page[min(at+n, len(page)):])
	start := at + n + m
	if n == 0 || m == 0 || size > maxRecord {
		return errCorrupt
	}
	record, err := d.payload(page, start, int(size))
	if err != nil {
		return err
	}
	values, err := valuesOf(record)
	if err != nil {
		return err
	}
	return visit(values)
}

// payload returns the record that starts in a page, with its overflow pages.
func (d *database) payload(page []byte, start, size int) ([]byte, error) {
	local := size
	if most := d.usable - 35; size > most {
		least := (d.usable-12)*32/255 - 23
		if local = least + (size-least)%(d.usable-4); local > most {
			local = least
		}
	}
	if start+local > len(page) || local < size && start+local+4 > len(page) {
		return nil, errCorrupt
	}
	record := append([]byte(nil), page[start:start+local]...)
	for next := page[start+local:]; len(record) < size; {
		page, err := d.page(int(binary.BigEndian.Uint32(next)))
		if err != nil {
			return nil, err
		}
		record = append(record, page[4:min(4+size-len(record), d.usable)]...)
		next = page
	}
	return record, nil
}

func varint(b []byte) (v uint64, n int) {
	for i := range min(9, len(b)) {
		if i == 8 {
			return v<<8 | uint64(b[i]), 9
		}
		if v = v<<7 | uint64(b[i]&0x7f); b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// valuesOf decodes a record.
func valuesOf(record []byte) (values []any, err error) {
	size, n := varint(record)
	if n == 0 || size > uint64(len(record)) || int(size) < n {
		return nil, errCorrupt
	}
	body := record[size:]
	for kinds := record[n:size]; len(kinds) > 0; {
		kind, n := varint(kinds)
		if n == 0 {
			return nil, errCorrupt
		}
		kinds = kinds[n:]
		length := lengthOf(kind)
		if length > uint64(len(body)) {
			return nil, errCorrupt
		}
		values = append(values, valueOf(kind, body[:length]))
		body = body[length:]
	}
	return values, nil
}

func lengthOf(kind uint64) uint64 {
	if kind >= 12 {
		return (kind - 12) / 2
	}
	return [...]uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, math.MaxUint64, math.MaxUint64}[kind]
}

func valueOf(kind uint64, text []byte) any {
	switch {
	case kind == 0:
		return nil
	case kind == 7:
		return math.Float64frombits(binary.BigEndian.Uint64(text))
	case kind == 8 || kind == 9:
		return int64(kind - 8)
	case kind >= 12 && kind%2 == 0:
		return text
	case kind >= 13:
		return string(text)
	}
	v := int64(int8(text[0]))
	for _, b := range text[1:] {
		v = v<<8 | int64(b)
	}
	return v
}
