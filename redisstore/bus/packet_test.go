package bus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

// note is a message to a pod.
type note struct{ pod, text string }

func (n note) to() string      { return n.pod }
func (n note) message() []byte { return []byte(n.text) }

func notes(texts ...string) []note {
	all := make([]note, len(texts))
	for i, text := range texts {
		all[i] = note{"a", text}
	}
	return all
}

func unpacked(t *testing.T, text string) []string {
	t.Helper()
	var got []string
	if err := unpack(text, func(m string) { got = append(got, m) }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPackets(t *testing.T) {
	long, full := strings.Repeat("l", maxPacked+1), strings.Repeat("f", maxPacked)
	for name, tt := range map[string]struct {
		items []note
		want  []int // items of each packet
	}{
		"one alone is itself":         {notes("x"), []int{1}},
		"several travel as one":       {notes("x", "", "y"), []int{3}},
		"a long one travels alone":    {notes("x", "y", long, "z", "z", long), []int{2, 1, 2, 1}},
		"long ones travel each alone": {notes(long, long), []int{1, 1}},
		"a packet is full some time":  {slices.Repeat(notes(full), 20), []int{8, 8, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var sizes []int
			var got, want []string
			for _, p := range packets(tt.items) {
				sizes = append(sizes, len(p.items))
				if len(p.items) == 1 && string(p.payload) != p.items[0].text {
					t.Errorf("a message alone is wrapped")
				}
				got = append(got, unpacked(t, string(p.payload))...)
			}
			for _, n := range tt.items {
				want = append(want, n.text)
			}
			if !slices.Equal(sizes, tt.want) || !slices.Equal(got, want) {
				t.Errorf("packets of %v items, want %v; messages equal and in order: %v",
					sizes, tt.want, slices.Equal(got, want))
			}
		})
	}
}

func TestByPodKeepsOrder(t *testing.T) {
	got := byPod([]note{{"a", "1"}, {"b", "1"}, {"a", "2"}, {"b", "2"}, {"a", "3"}})
	want := map[string][]note{"a": {{"a", "1"}, {"a", "2"}, {"a", "3"}}, "b": {{"b", "1"}, {"b", "2"}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

func TestABrokenPacketSpoilsOnlyItsRest(t *testing.T) {
	whole := packets(notes("one", "two", "three"))[0].payload
	for cut := 1; cut < len(whole); cut++ {
		var got []string
		err := unpack(string(whole[:cut]), func(m string) { got = append(got, m) })
		if want := []string{"one", "two", "three"}[:len(got)]; !slices.Equal(got, want) {
			t.Errorf("cut after %d bytes: %q", cut, got)
		}
		boundary := cut == 1 || cut == 5 || cut == 9
		if (err == nil) != boundary || err != nil && !errors.Is(err, errPacket) {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
}

// TestPacketsArrive sends what a packet may hold, and what it may not, to a bus that goes on afterwards.
func TestPacketsArrive(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	inbox := registrytest.NewInbox()
	b := listen(t, conn, "a", panicky{inbox})
	encoded := func(id string) string {
		text, err := encodeEnvelope(call1(id))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	inner := packets(notes(encoded("nested"), encoded("nested")))[0].payload
	several := packets(notes(encoded("c1"), "nonsense", encoded("boom"), string(inner), encoded("c2")))[0].payload
	for _, payload := range [][]byte{several, append(bytes.Clone(several), 200)} { // the second is broken at its end
		if err := conn.Client().Publish(t.Context(), podChannel("a"), payload).Err(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"c1", "c2"} {
			if got := receive(t, inbox.Envelopes).CallID; got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
	}
	registrytest.Eventually(t, "what is broken is counted", func() bool {
		s := b.Stats()
		return s.Malformed == 5 && s.Panics == 2
	})
}

// TestQueuedMessagesShareAPacket: what waits for the batch before leaves as one message, each way.
func TestQueuedMessagesShareAPacket(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	inbox := registrytest.NewInbox()
	listen(t, conn, "a", inbox)
	wire := conn.Client().Subscribe(t.Context(), podChannel("a"))
	defer wire.Close()
	if _, err := wire.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := New(conn, Options{})
	var sent []*pendingEnvelope
	outcomes := make(chan error, 200)
	for i := range 100 {
		text, err := encodeEnvelope(call1(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, &pendingEnvelope{ctx: t.Context(), sender: told(outcomes), pod: "a", payload: text})
	}
	nobody := &pendingEnvelope{ctx: t.Context(), sender: told(outcomes), pod: "nobody", payload: sent[0].payload}
	b.publish(append(sent, nobody))
	for i := range sent {
		if got := receive(t, inbox.Envelopes).CallID; got != fmt.Sprint(i) {
			t.Fatalf("call %d is %s", i, got)
		}
	}
	if m, err := wire.ReceiveMessage(t.Context()); err != nil || len(unpacked(t, m.Payload)) != len(sent) {
		t.Errorf("the first message holds %d calls, %v", len(unpacked(t, m.Payload)), err)
	}
	refused := 0
	for range len(sent) + 1 {
		if err := receive(t, outcomes); errors.Is(err, registry.ErrNoReceiver) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 1 {
		t.Errorf("%d found no receiver, want the one to nobody", refused)
	}
	if s := b.Stats(); s.CallsSent != 101 || s.CallPackets != 2 {
		t.Errorf("counted %d calls in %d packets, want 101 in 2", s.CallsSent, s.CallPackets)
	}
}

// TestQueuedAnswersAreBundled: an element of the list for each pod, of which nothing is missing.
func TestQueuedAnswersAreBundled(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	b := New(conn, Options{})
	var batch []*pendingReply
	for i := range 100 {
		text, err := encodeReply(answerOf(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, &pendingReply{pod: []string{"a", "b"}[i%2], payload: text})
	}
	b.replies[0].push(batch)
	for _, pod := range []string{"a", "b"} {
		if n, err := conn.Client().LLen(t.Context(), podRepliesKey(pod)).Result(); n != 1 || err != nil {
			t.Errorf("the list of %s has %d elements, %v", pod, n, err)
		}
	}
	if s := b.Stats(); s.RepliesSent != 100 || s.ReplyPackets != 2 {
		t.Errorf("counted %d replies in %d packets, want 100 in 2", s.RepliesSent, s.ReplyPackets)
	}
	inbox := registrytest.NewInbox()
	listen(t, conn, "b", inbox)
	for i := 1; i < len(batch); i += 2 {
		if got := receive(t, inbox.Replies).CallID; got != fmt.Sprint(i) {
			t.Fatalf("answer %d is %s", i, got)
		}
	}
}

// told passes on what a sender hears.
type told chan error

func (c told) Sent(err error) { c <- err }

func FuzzBundle(f *testing.F) {
	f.Add("", "B\x03one\x00\x03two")
	f.Add("x", "B\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Add(strings.Repeat("x", 200), "P")
	f.Fuzz(func(t *testing.T, message, text string) {
		_ = unpack(text, func(string) {}) // whatever comes, it ends
		got := unpacked(t, string(packets(notes(message, message, "end"))[0].payload))
		if len(message) <= maxPacked && !slices.Equal(got, []string{message, message, "end"}) {
			t.Errorf("%q came back as %q", message, got)
		}
	})
}
