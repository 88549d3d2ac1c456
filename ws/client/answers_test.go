package client

import (
	"strconv"
	"testing"
	"time"
)

func TestAnswersAreBounded(t *testing.T) {
	var a answers
	for i := range maxAnswers + 10 {
		a.put(strconv.Itoa(i), []byte("x"))
	}
	if _, there := a.get("9"); there || len(a.frames) != maxAnswers || a.size != maxAnswers {
		t.Fatalf("%d answers of %d bytes", len(a.frames), a.size)
	}
	if _, there := a.get("10"); !there {
		t.Fatal("one that fits was forgotten")
	}
	for i := range 20 {
		a.put("big"+strconv.Itoa(i), make([]byte, 1<<20))
	}
	if a.size > maxAnswerBytes || len(a.frames) != len(a.order) {
		t.Fatalf("%d bytes, %d frames, %d ids", a.size, len(a.frames), len(a.order))
	}
	a.put("big19", []byte("another"))
	if frame, _ := a.get("big19"); len(frame) != 1<<20 {
		t.Fatal("the first answer was replaced")
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
