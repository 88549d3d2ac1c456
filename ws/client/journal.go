package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// What a journal has, by key.
const (
	keySession  = "session" // a keptSession
	callPrefix  = "call/"   // and the call's id: a keptCall
	spareBytes  = 1 << 20   // of outdated lines, after which the file is made anew
	textLost    = "The device restarted during this call. What it did until then is not known."
	textRepeats = "This call was answered before. It is not run again."
)

type keptSession struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// keptCall is a call that has begun. Without a frame it has no answer.
type keptCall struct {
	At           int64  `json:"at"` // in Unix milliseconds
	Frame        string `json:"frame,omitempty"`
	Acknowledged bool   `json:"acknowledged,omitempty"`
}

// journal is a file of a device's session and calls. Each change is a line at its end: a list of a key and its value,
// without a value if there is none. The TypeScript SDK's files are the same. It is safe for concurrent use.
type journal struct {
	path string

	mu     sync.Mutex
	values map[string]json.RawMessage
	file   *os.File
	size   int // bytes written since the file was made
	most   int // of size, until it is made anew; negative: the end of the file may be broken
}

// openJournal reads the file, and makes it anew without outdated lines.
func openJournal(path string) (*journal, error) {
	j := &journal{path: path, values: make(map[string]json.RawMessage)}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		var entry []json.RawMessage
		var key string
		if json.Unmarshal(line, &entry) != nil || len(entry) == 0 || json.Unmarshal(entry[0], &key) != nil {
			continue // the last line, and a crash broke it
		}
		if delete(j.values, key); len(entry) > 1 {
			j.values[key] = entry[1]
		}
	}
	return j, j.rewrite()
}

// put keeps a value; nil removes it. With durable it is on the disk when put returns.
func (j *journal) put(key string, value any, durable bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	line, raw, err := journalLine(key, value)
	if err != nil {
		return err
	}
	if value != nil && bytes.Equal(j.values[key], raw) {
		return nil
	}
	if delete(j.values, key); value != nil {
		j.values[key] = raw
	}
	if j.size += len(line); j.size > j.most {
		return j.rewrite()
	}
	if _, err = j.file.Write(line); err == nil && durable {
		err = j.file.Sync()
	}
	if err != nil {
		j.most = -1
	}
	return err
}

func journalLine(key string, value any) (line []byte, raw json.RawMessage, err error) {
	entry := []any{key}
	if value != nil {
		if raw, err = encode(value); err != nil {
			return nil, nil, err
		}
		entry = append(entry, raw)
	}
	line, err = encode(entry)
	return append(line, '\n'), raw, err
}

// rewrite replaces the file by one with the current values.
func (j *journal) rewrite() error {
	var all []byte
	for key, value := range j.values {
		line, _, err := journalLine(key, value)
		if err != nil {
			return err
		}
		all = append(all, line...)
	}
	next, err := os.OpenFile(j.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(all)
	if err = errors.Join(err, next.Sync()); err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		return errors.Join(err, next.Close())
	}
	if j.file != nil {
		_ = j.file.Close() // its lines are in the new file
	}
	j.file, j.size, j.most = next, 0, len(all)+spareBytes
	return nil
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.file.Close() // what counts is on the disk
}

// remember opens the journal, if there is one, and continues with what it has.
func (c *Client) remember() (forget func(), err error) {
	if c.cfg.journal == "" {
		return func() {}, nil
	}
	j, err := openJournal(c.cfg.journal)
	if err != nil {
		return nil, fmt.Errorf("client: the journal: %w", err)
	}
	var session keptSession
	if raw, there := j.values[keySession]; there && json.Unmarshal(raw, &session) == nil {
		c.mu.Lock()
		if c.session == "" || c.session == session.ID {
			c.session, c.token = session.ID, session.Token
		}
		c.mu.Unlock()
	}
	type entry struct {
		id string
		keptCall
	}
	var kept []entry
	for key, raw := range j.values {
		e := entry{}
		id, isCall := strings.CutPrefix(key, callPrefix)
		if isCall && json.Unmarshal(raw, &e.keptCall) == nil {
			e.id = id
			kept = append(kept, e)
		}
	}
	slices.SortFunc(kept, func(a, b entry) int { return int(a.At - b.At) })
	c.calls.mu.Lock()
	c.calls.journal = j
	for _, e := range kept {
		frame := []byte(e.Frame)
		switch {
		case e.Acknowledged:
			frame = c.failure(e.id, textRepeats)
		case e.Frame == "":
			frame = c.failure(e.id, textLost)
		}
		c.calls.forget(c.calls.answers.put(e.id, frame, time.UnixMilli(e.At)))
		if e.Acknowledged {
			c.calls.answers.acknowledge(e.id)
		}
	}
	c.calls.mu.Unlock()
	return func() {
		c.calls.mu.Lock()
		c.calls.journal = nil
		c.calls.mu.Unlock()
		j.close()
	}, nil
}

// note changes the journal, if there is one.
func (c *calls) note(key string, value any, durable bool) error {
	c.mu.Lock()
	j := c.journal
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	return j.put(key, value, durable)
}

// forget removes calls from the journal. c.mu must be held.
func (c *calls) forget(ids []string) {
	for _, id := range ids {
		if c.journal != nil {
			_ = c.journal.put(callPrefix+id, nil, false) // the next start removes it otherwise
		}
	}
}
