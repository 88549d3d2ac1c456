package shell

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// TestCapture compares what is kept with all that was written, for writes of any size.
func TestCapture(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		most := 2 + random.IntN(40)
		c, all := newCapture(most), ""
		for range random.IntN(12) {
			piece := strings.Repeat(string(rune('a'+random.IntN(26))), random.IntN(30))
			all += piece
			if n, err := c.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		half := most / 2
		if len(all) <= 2*half {
			if c.text() != all || c.cut() != 0 {
				t.Fatalf("%d of %q: %q", most, all, c.text())
			}
			continue
		}
		head, tail, ok := strings.Cut(c.text(), "\n[cut: ")
		if !ok || head != all[:half] || !strings.HasSuffix(tail, " bytes]\n"+all[len(all)-half:]) ||
			c.cut() != int64(len(all)-2*half) {
			t.Fatalf("%d of %q: %q", most, all, c.text())
		}
	}
}

func TestCaptureOfCharacters(t *testing.T) {
	for most := 8; most < 40; most++ {
		c := newCapture(most)
		_, _ = c.Write([]byte(strings.Repeat("日é", 100)))
		if text := c.text(); !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
			t.Errorf("%d: %q", most, text)
		}
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		p := &progress{report: func(chunk string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, chunk)
		}}
		p.write([]byte("one "))
		p.write([]byte("two \xc3"))
		time.Sleep(reportEvery / 2)
		synctest.Wait()
		mu.Lock()
		if len(got) != 0 {
			t.Errorf("too early: %q", got)
		}
		mu.Unlock()
		time.Sleep(reportEvery)
		synctest.Wait()
		p.write([]byte("\xa9"))
		p.write([]byte(strings.Repeat("x", reportBytes)))
		p.end()
		p.write([]byte("late"))
		p.flush()
		want := []string{"one two ", "é" + strings.Repeat("x", reportBytes-2), "xx"}
		if !slices.Equal(got, want) {
			t.Errorf("%.60q", got)
		}
	})
}

// What follows half a character is reported as soon as anything else is, and half a character whose rest does not come
// is not held back.
func TestProgressAfterHalfACharacter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan string, 10)
		p := &progress{report: func(chunk string) { reports <- chunk }}
		defer p.end()
		want := func(text string) {
			t.Helper()
			select {
			case got := <-reports:
				if got != text {
					t.Errorf("reported is %q, not %q", got, text)
				}
			case <-time.After(time.Hour):
				t.Errorf("%q is not reported while nothing else is written", text)
			}
		}
		p.write([]byte("caf\xc3"))
		want("caf")
		p.write([]byte("\xa9? "))
		want("é? ")
		p.write([]byte("caf\xe9"))
		want("caf")
		want("\ufffd")
	})
}

func TestProgressIsBounded(t *testing.T) {
	var got []string
	p := &progress{report: func(chunk string) { got = append(got, chunk) }}
	for range 100 {
		p.write([]byte(strings.Repeat("é", 10_000)))
	}
	p.end()
	all := strings.Join(got, "")
	if n := strings.Count(all, "é"); n < maxReported/2-1 || n > maxReported/2 || len(got) > maxReported/reportBytes+2 ||
		!strings.HasSuffix(all, "[further output is not shown while the command runs]\n") {
		t.Errorf("%d of %d chunks: …%q", n, len(got), all[len(all)-60:])
	}
}
