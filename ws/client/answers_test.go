package client

import (
	"math"
	"strconv"
	"testing"
	"time"
)

func TestAnswersAreBounded(t *testing.T) {
	var a answers
	now := time.Now()
	for i := range maxAnswers + 10 {
		a.put(strconv.Itoa(i), []byte("x"), now)
	}
	if _, there := a.get("9"); there || len(a.byID) != maxAnswers || a.size != maxAnswers {
		t.Fatalf("%d answers of %d bytes", len(a.byID), a.size)
	}
	if _, there := a.get("10"); !there {
		t.Fatal("one that fits was forgotten")
	}
	for i := range 20 {
		a.put("big"+strconv.Itoa(i), make([]byte, 1<<20), now)
	}
	if a.size > maxAnswerBytes || len(a.byID) != len(a.order) {
		t.Fatalf("%d bytes, %d frames, %d ids", a.size, len(a.byID), len(a.order))
	}
	a.put("big19", []byte("another"), now)
	if frame, _ := a.get("big19"); len(frame) != 1<<20 {
		t.Fatal("the first answer was replaced")
	}
	a.put("huge", make([]byte, 2*maxAnswerBytes), now)
	if _, there := a.get("huge"); !there || len(a.order) != 1 {
		t.Fatal("the latest answer was forgotten")
	}
}

func TestAnswersAreSentOncePerConnectionUntilAcknowledged(t *testing.T) {
	var a answers
	now := time.Now()
	a.put("old", []byte("old"), now.Add(-resendFor-time.Second))
	for _, id := range []string{"1", "2", "3"} {
		a.put(id, []byte(id), now)
	}
	if _, ok := a.claim("2", 1); !ok {
		t.Fatal("not sent at all")
	}
	if _, ok := a.claim("2", 1); ok {
		t.Fatal("sent twice on one connection")
	}
	a.acknowledge("3")
	a.acknowledge("unknown")
	for i, want := range []string{"1", "12"} { // on the first connection 2 was sent already
		link, got := int64(i+1), ""
		for frame, ok := a.claimNext(link, now); ok; frame, ok = a.claimNext(link, now) {
			got += string(frame)
		}
		if got != want {
			t.Errorf("connection %d: %q, want %q", link, got, want)
		}
	}
}

func TestPace(t *testing.T) {
	for name, tt := range map[string]struct {
		announced string
		burst     int
		interval  time.Duration
	}{
		"defaults":  {`{}`, 200, 5 * time.Millisecond},
		"malformed": {`{"frames_per_second":"many"}`, 200, 5 * time.Millisecond},
		"negative":  {`{"frames_per_second":-1,"frame_burst":-1}`, 200, 5 * time.Millisecond},
		"slow":      {`{"frames_per_second":10,"frame_burst":20}`, 4, 250 * time.Millisecond},
		"tiny":      {`{"frames_per_second":1,"frame_burst":1}`, 1, 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			p.limit(limitsOf([]byte(tt.announced)))
			now := time.Now()
			for i := range tt.burst {
				if d := p.reserve(now, true); d != 0 {
					t.Fatalf("frame %d must wait %v", i, d)
				}
			}
			for range 3 { // what only tries takes no place
				if d := p.reserve(now, true); d != tt.interval {
					t.Fatalf("one more must wait %v", d)
				}
			}
			if first, second := p.reserve(now, false), p.reserve(now, false); first != tt.interval ||
				second != 2*tt.interval {
				t.Fatalf("waiting %v, then %v", first, second)
			}
			if d := p.reserve(now.Add(time.Minute), true); d != 0 {
				t.Fatalf("after a minute: %v", d)
			}
		})
	}
	var p pace
	p.limit(limits{PerSecond: 1, Burst: math.MaxInt})
	if d := p.reserve(time.Now(), false); d != 0 {
		t.Errorf("with the longest burst the first frame waits %v", d)
	}
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	b := backoff{min: time.Millisecond, max: 8 * time.Millisecond}
	for range 100 {
		if d := b.next(time.Second); d < time.Second || d >= time.Second+8*time.Millisecond {
			t.Fatalf("delay %v", d)
		}
	}
	if b.ceiling != b.max {
		t.Fatalf("ceiling %v", b.ceiling)
	}
	b.reset()
	if d := b.next(0); d >= time.Millisecond {
		t.Fatalf("delay after reset %v", d)
	}
}
