package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

const (
	// documentForm is the version of the stored form of documents. A pod does not read documents of another version.
	documentForm = "1"

	// documentFields is how many fields of each document lua/docs_read.lua returns.
	documentFields = 5
)

// documentStore implements documents.Store.
type documentStore struct{ conn *redisconn.Conn }

// Documents returns the documents that approvals and others are made of.
func (s *Store) Documents() documents.Store { return documentStore{s.conn} }

func (s documentStore) Read(ctx context.Context, refs ...documents.Ref) ([]documents.Document, error) {
	pipe := s.conn.Pipeline()
	var commands []*redisconn.Command
	var keys []string
	for i, ref := range refs {
		keys = append(keys, documentKey(ref.Space, ref.ID))
		if i+1 == len(refs) || refs[i+1].Space != ref.Space || len(keys) == documents.ReadAtOnce {
			commands = append(commands, pipe.Eval(scriptDocsRead, keys))
			keys = nil
		}
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	found := make([]documents.Document, 0, len(refs))
	for _, c := range commands {
		answer := c.List()
		if len(answer)%documentFields != 1 {
			return nil, c.ErrShape()
		}
		now := time.UnixMilli(redisconn.Int(answer[0])).UTC()
		for fields := range slices.Chunk(answer[1:], documentFields) {
			found = append(found, s.parseDocument(now, fields))
		}
	}
	if len(found) != len(refs) {
		return nil, registry.StoreUnavailable("read documents", fmt.Errorf("%d instead of %d", len(found), len(refs)))
	}
	return found, nil
}

// parseDocument reads the fields that lua/docs_read.lua returns of a document.
func (s documentStore) parseDocument(now time.Time, fields []any) documents.Document {
	text := redisconn.Strings(fields)
	d := documents.Document{Revision: text[1], Now: now}
	switch form := text[0]; {
	case d.Revision != "" && form != documentForm:
		d.Err = s.conn.Forms().Refuse(redisconn.FormDocument, form)
	case d.Revision != "":
		d.Data, d.Created = []byte(text[2]), fromMillis(text[3])
		d.Expires = now.Add(time.Duration(redisconn.Int(fields[4])) * time.Millisecond)
	}
	return d
}

func (s documentStore) Members(ctx context.Context, queries ...documents.Query) ([][]string, error) {
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(queries))
	for i, q := range queries {
		commands[i] = pipe.Eval(scriptDocsList, []string{indexKey(q.Space, q.Index)}, flag(q.Due), q.Limit, q.Skip)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	lists := make([][]string, len(queries))
	for i, c := range commands {
		lists[i] = c.Strings()
	}
	return lists, nil
}

// Write implements documents.Store. It sends a script for each write.
func (s documentStore) Write(ctx context.Context, writes ...documents.Write) ([]documents.Written, error) {
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(writes))
	var keys []string // one of each master
	for i, write := range writes {
		w := documentWrite{space: write.Space, args: []any{documentForm, rand.Text()}}
		for _, conditions := range [...]bool{true, false} {
			for i, step := range write.Steps {
				if step.Op.IsCondition() == conditions {
					w.add(i+1, step)
				}
			}
		}
		if len(keys) == 0 || s.conn.IsCluster() {
			keys = append(keys, w.keys[0])
		}
		commands[i] = pipe.Eval(scriptDocsWrite, w.keys, w.args...)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	done := make([]documents.Written, len(writes))
	for i, c := range commands {
		answer := c.Strings()
		if len(answer) != 2 {
			return nil, c.ErrShape()
		}
		done[i] = documents.Written{Now: fromMillis(answer[0]), Refused: int(redisconn.Int(answer[1]))}
	}
	for _, key := range keys {
		if err := s.conn.Confirm(ctx, key); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// documentWrite collects the keys and arguments of lua/docs_write.lua.
type documentWrite struct {
	space documents.Space
	keys  []string
	args  []any
}

func (w *documentWrite) add(number int, step documents.Step) {
	var a, b any = "", ""
	key := documentKey(w.space, step.Name)
	switch step.Op {
	case documents.OpExpect:
		a = step.Text
	case documents.OpPut:
		a, b = step.Text, lifeText(step)
	case documents.OpExtend:
		a = lifeText(step)
	case documents.OpAtMost:
		for _, term := range step.Terms {
			if term.Weight == 0 {
				w.append(indexKey(w.space, term.Index), "weigh", "", term.Except, number)
			} else {
				w.append(indexKey(w.space, term.Index), "count", term.Weight, term.Except, number)
			}
		}
		a = step.N
	case documents.OpJoin:
		key, a = indexKey(w.space, step.Name), step.Member
		b = lifeText(step) + " " + decimal(wholeMillis(step.Stay))
	case documents.OpHas, documents.OpLeave:
		key, a = indexKey(w.space, step.Name), step.Member
	case documents.OpKeep:
		key, a = indexKey(w.space, step.Name), step.N
	}
	w.append(key, string(step.Op), a, b, number)
}

func (w *documentWrite) append(key, op string, a, b any, number int) {
	w.keys, w.args = append(w.keys, key), append(w.args, op, a, b, number)
}

// lifeText is the life that a step gives in ms, followed by its end in ms if it has one.
func lifeText(step documents.Step) string {
	life := decimal(wholeMillis(step.Life))
	if !step.End.IsZero() {
		life += "@" + decimal(step.End.UnixMilli())
	}
	return life
}

// wholeMillis is millis, but zero stays zero.
func wholeMillis(d time.Duration) int64 {
	if d == 0 {
		return 0
	}
	return millis(d)
}
