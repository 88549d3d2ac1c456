package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

var documentTests = []subtest{
	{name: "a document comes back as it was written", run: func(f *fixture) {
		space, odd := f.space(""), []byte("\x00\xff\r\n$-1 \u2028")
		made := f.write(space, documents.Put("a", odd, time.Minute), documents.Put("b", nil, time.Hour))
		odd[0] = 'x' // the store must not share memory with callers
		others := []documents.Space{
			f.space("o"), {Tenant: f.tenant + "x", Kind: space.Kind}, {Tenant: f.tenant, Kind: "x"},
		}
		refs := []documents.Ref{space.Ref("a"), space.Ref("b"), space.Ref("c")}
		for _, other := range others {
			refs = append(refs, other.Ref("a"))
		}
		found, err := f.docs().Read(f.ctx, refs...)
		f.must(err)
		for i, want := range []struct {
			data string
			life time.Duration
		}{{"\x00\xff\r\n$-1 \u2028", time.Minute}, {"", time.Hour}} {
			d := found[i]
			if string(d.Data) != want.data || !d.Exists() || !d.Created.Equal(made.Now) || d.Now.Before(made.Now) ||
				d.Expires.Sub(made.Now)-want.life > 0 || made.Now.Add(want.life).Sub(d.Expires) > time.Second {
				f.Errorf("document %d: %+v, made at %v", i, d, made.Now)
			}
		}
		for i, d := range found[2:] {
			if d.Exists() || d.Data != nil || d.Now.IsZero() {
				f.Errorf("%+v: %+v", refs[2+i], d)
			}
		}
		if made.Now.Truncate(time.Millisecond) != made.Now || time.Since(made.Now).Abs() > time.Minute {
			f.Errorf("made at %v", made.Now)
		}
		if found, err := f.docs().Read(f.ctx); err != nil || len(found) != 0 {
			f.Errorf("%+v, %v", found, err)
		}
	}},
	{name: "a document that is replaced keeps its creation, and its life if it shall", run: func(f *fixture) {
		space := f.space("")
		f.write(space, documents.Put("a", []byte("1"), time.Minute))
		first := f.document(space, "a")
		f.write(space, documents.Put("a", []byte("2"), 0), documents.Put("none", []byte("2"), 0))
		second := f.document(space, "a")
		if string(second.Data) != "2" || second.Revision == first.Revision || !second.Created.Equal(first.Created) ||
			second.Expires.Sub(first.Expires).Abs() > time.Second || f.document(space, "none").Exists() {
			f.Errorf("%+v after %+v", second, first)
		}
		f.write(space, documents.Put("a", []byte("3"), time.Hour))
		if third := f.document(space, "a"); third.Expires.Sub(third.Now) < 59*time.Minute {
			f.Errorf("%+v", third)
		}
		f.write(space, documents.Extend("a", 2*time.Hour), documents.Extend("none", time.Hour))
		if d := f.document(space, "a"); string(d.Data) != "3" || d.Expires.Sub(d.Now) < 119*time.Minute {
			f.Errorf("%+v", d)
		}
		f.write(space, documents.Delete("a"), documents.Delete("none"), documents.Put("a", []byte("4"), time.Minute))
		f.write(space, documents.Delete("a"))
		if d := f.document(space, "a"); d.Exists() {
			f.Errorf("%+v", d)
		}
	}},
	{name: "a condition that is not met keeps everything as it was", run: func(f *fixture) {
		space := f.space("")
		f.write(space, documents.Put("a", []byte("1"), time.Minute), documents.Join("x", "m", time.Minute, 0))
		a := f.document(space, "a")
		all := documents.Term{Index: "x", Weight: 1}
		for i, steps := range [][]documents.Step{
			{documents.Expect("a", "")}, {documents.Expect("a", "other")}, {documents.Expect("b", a.Revision)},
			{documents.Has("x", "n")}, {documents.Has("y", "m")}, {documents.AtMost(0, all)},
			{documents.Expect("a", a.Revision), documents.Has("x", "m"), documents.AtMost(0, all)},
		} {
			changes := append(slices.Clone(steps), documents.Put("a", []byte("2"), time.Minute), documents.Delete("b"),
				documents.Leave("x", "m"))
			if i == 0 { // conditions come first, wherever they stand
				slices.Reverse(changes)
			}
			done, err := documents.Commit(f.ctx, f.docs(), space, changes...)
			f.must(err)
			want := len(steps)
			if i == 0 {
				want = len(changes)
			}
			if done.Refused != want {
				f.Errorf("%d: refused %d, want %d", i, done.Refused, want)
			}
		}
		f.wantMembers(space, "x", false, "m")
		if got := f.document(space, "a"); got.Revision != a.Revision || string(got.Data) != "1" {
			f.Errorf("%+v", got)
		}
		f.write(space, documents.Expect("a", a.Revision), documents.Expect("b", ""), documents.Has("x", "m"),
			documents.AtMost(1, all), documents.AtMost(0, documents.Term{Index: "y", Weight: 1}),
			documents.AtMost(0, documents.Term{Index: "x", Weight: 1, Except: "m"}))
	}},
	{name: "members are ordered by time, and counted while it is ahead", run: func(f *fixture) {
		space := f.space("")
		f.write(space,
			documents.Join("x", "7 c", time.Hour, 0), documents.Join("x", "5 a", briefly, 0),
			documents.Join("x", "6 b", time.Minute, 0), documents.Join("x", "6 b", time.Second, 0),
			documents.Join("y", "1", time.Minute, 0))
		f.eventually("one leaves", func() bool { return len(f.members(space, "x", false)) == 2 })
		f.wantMembers(space, "x", false, "6 b", "7 c")
		for _, step := range []documents.Step{
			documents.AtMost(13, documents.Term{Index: "x"}),
			documents.AtMost(7, documents.Term{Index: "x", Except: "6 b"}),
			documents.AtMost(13, documents.Term{Index: "x", Except: "5 a"}),
			documents.AtMost(23, documents.Term{Index: "x", Weight: 10}, documents.Term{Index: "y", Weight: 3}),
			documents.AtMost(10, documents.Term{Index: "x", Weight: 10, Except: documents.Weighed(6, "b")}),
			documents.AtMost(20, documents.Term{Index: "x", Weight: 10, Except: "5 a"}),
		} {
			f.write(space, step)
			step.N--
			if done, err := documents.Commit(f.ctx, f.docs(), space, step); done.Refused != 1 || err != nil {
				f.Errorf("%+v: %+v, %v", step, done, err)
			}
		}
		page, err := f.docs().Members(f.ctx,
			documents.Query{Space: space, Index: "x", Skip: 1, Limit: 5},
			documents.Query{Space: space, Index: "x", Limit: 1},
			documents.Query{Space: space, Index: "none", Limit: 1})
		if err != nil || fmt.Sprint(page) != "[[7 c] [6 b] []]" {
			f.Errorf("%v, %v", page, err)
		}
		f.write(space, documents.Leave("x", "6 b"), documents.Leave("x", "none"), documents.Leave("none", "6 b"))
		f.wantMembers(space, "x", false, "7 c")
	}},
	{name: "members whose time has come are due while they stay", run: func(f *fixture) {
		space := f.space("")
		f.write(space, documents.Join("x", "later", time.Hour, time.Minute), documents.Join("x", "now", 0, time.Minute),
			documents.Join("y", "gone", 0, 0))
		f.wantMembers(space, "x", true, "now")
		f.wantMembers(space, "x", false, "later")
		f.write(space, documents.Leave("x", "later"), documents.Join("x", "later", 0, time.Minute))
		if due := f.members(space, "x", true); len(due) != 2 {
			f.Errorf("due %v", due)
		}
		f.wantMembers(space, "x", false)
	}},
	{name: "an index keeps its latest members", run: func(f *fixture) {
		space := f.space("")
		for i := range 5 {
			life := time.Minute + time.Duration(i)*time.Second
			f.write(space, documents.Join("x", strconv.Itoa(i), life, 0), documents.Keep("x", 3))
		}
		f.wantMembers(space, "x", false, "2", "3", "4")
	}},
	{name: "a document expires", run: func(f *fixture) {
		space := f.space("")
		f.write(space, documents.Put("a", []byte("1"), briefly))
		f.eventually("it is gone", func() bool { return !f.document(space, "a").Exists() })
		f.write(space, documents.Expect("a", ""), documents.Put("a", []byte("2"), 0))
		if d := f.document(space, "a"); d.Exists() {
			f.Errorf("%+v", d)
		}
	}},
	{name: "what has an end ends then, whenever it is written", run: func(f *fixture) {
		space, end := f.space(""), time.Now().Add(time.Minute).Truncate(time.Millisecond)
		f.write(space, documents.Put("a", nil, time.Hour).Until(end), documents.Put("b", nil, time.Hour),
			documents.Put("c", nil, time.Second).Until(end), documents.Put("d", nil, time.Hour).Until(time.Time{}),
			documents.Put("gone", nil, time.Hour).Until(end.Add(-time.Hour)),
			documents.Join("x", "last", time.Hour, 0), documents.Join("x", "first", 2*time.Hour, 0).Until(end))
		f.write(space, documents.Extend("b", time.Hour).Until(end))
		for _, id := range []string{"a", "b"} {
			if d := f.document(space, id); d.Expires.Sub(end).Abs() > time.Millisecond {
				f.Errorf("%s expires at %v, want %v", id, d.Expires, end)
			}
		}
		if c := f.document(space, "c"); !c.Expires.Before(end) {
			f.Errorf("%+v", c)
		}
		if d := f.document(space, "d"); !d.Expires.After(end) || f.document(space, "gone").Exists() {
			f.Errorf("%+v", d)
		}
		f.wantMembers(space, "x", false, "first", "last")
	}},
	{name: "concurrent changes are all made, each once", run: func(f *fixture) {
		space := f.space("")
		var made atomic.Int64
		together(racers, func(int) {
			for range 5 {
				err := documents.Change(f.ctx, f.docs(), space, []string{"a", "b"},
					func(found []documents.Document) ([]documents.Step, error) {
						n, _ := strconv.Atoi(string(found[0].Data))
						data := []byte(strconv.Itoa(n + 1))
						return []documents.Step{
							documents.Put("a", data, time.Minute), documents.Put("b", data, time.Minute),
						}, nil
					})
				if err == nil {
					made.Add(1)
				} else if !errors.Is(err, documents.ErrContended) {
					f.Errorf("change: %v", err)
				}
			}
		})
		want := strconv.FormatInt(made.Load(), 10)
		if a, b := f.document(space, "a"), f.document(space, "b"); string(a.Data) != want || string(b.Data) != want {
			f.Errorf("%s and %s after %s changes", a.Data, b.Data, want)
		}
	}},
	{name: "a change that finds nothing to do writes nothing", run: func(f *fixture) {
		space, tries := f.space(""), 0
		interfere := func(steps []documents.Step, failure error) error {
			return documents.Change(f.ctx, f.docs(), space, []string{"a"},
				func([]documents.Document) ([]documents.Step, error) {
					tries++
					f.write(space, documents.Put("a", []byte(strconv.Itoa(tries)), time.Minute))
					return steps, failure
				})
		}
		failure := errors.New("failure")
		f.must(interfere(nil, nil))
		if err := interfere([]documents.Step{documents.Delete("a")}, failure); !errors.Is(err, failure) || tries != 2 {
			f.Errorf("%v after %d tries", err, tries)
		}
		tries = 0
		err := interfere([]documents.Step{}, nil) // checks the document all the same
		if !errors.Is(err, registry.CodeBusy) || tries != documents.MaxTries {
			f.Errorf("%v after %d tries", err, tries)
		}
	}},
}

// docs returns the documents of the store. A store may do without them.
func (f *fixture) docs() documents.Store {
	f.Helper()
	store, ok := f.store.(interface{ Documents() documents.Store })
	if !ok {
		f.Skip("the store has no documents")
	}
	return store.Documents()
}

// space returns a space of this subtest.
func (f *fixture) space(owner string) documents.Space {
	return documents.Space{Tenant: f.tenant, Kind: "test", Owner: owner}
}

func (f *fixture) write(space documents.Space, steps ...documents.Step) documents.Written {
	f.Helper()
	done, err := documents.Commit(f.ctx, f.docs(), space, steps...)
	f.must(err)
	if done.Refused != 0 {
		f.Fatalf("condition %d of %+v is not met", done.Refused, steps)
	}
	return done
}

func (f *fixture) document(space documents.Space, id string) documents.Document {
	f.Helper()
	found, err := f.docs().Read(f.ctx, space.Ref(id))
	f.must(err)
	return found[0]
}

func (f *fixture) members(space documents.Space, index string, due bool) []string {
	f.Helper()
	lists, err := f.docs().Members(f.ctx, documents.Query{Space: space, Index: index, Due: due, Limit: 100})
	f.must(err)
	return lists[0]
}

func (f *fixture) wantMembers(space documents.Space, index string, due bool, want ...string) {
	f.Helper()
	if got := f.members(space, index, due); !slices.Equal(got, want) {
		f.Errorf("members %v, want %v", got, want)
	}
}
