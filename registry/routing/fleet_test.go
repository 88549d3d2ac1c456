package routing

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// TestFleetAnswersEachOther: a pod gets the summaries of all pods, asks again only after a second, and does not wait
// longer than that for a pod that says nothing, or too much.
func TestFleetAnswersEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		a, b := startPod(t, store, "a"), startPod(t, store, "b")
		silent := store.NewBus()
		if err := silent.Listen(t.Context(), "c", deafHandler{}); err != nil {
			t.Fatal(err)
		}
		defer silent.Close(t.Context())
		if _, err := store.Heartbeat(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		questions := 0
		gone, leave := context.WithCancel(t.Context())
		b.Fleet.Serve(func() []byte { leave(); return []byte("b is well") })
		if all, err := a.Fleet.Ask(gone); err != nil || string(all[1].Summary) != "b is well" {
			t.Errorf("asked by a client that disconnects: %v, %v", all, err)
		}
		time.Sleep(summaryFresh)
		synctest.Wait()
		a.Fleet.Serve(func() []byte { questions++; return []byte("a is well") })
		b.Fleet.Serve(func() []byte { return []byte(strings.Repeat("b", questions*5000)) })

		want := func(begin string, texts ...string) {
			t.Helper()
			began := time.Now()
			all, err := a.Fleet.Ask(t.Context())
			if err != nil || time.Since(began) > summaryWait {
				t.Fatalf("%s: %v, after %v", begin, err, time.Since(began))
			}
			got := []string{}
			for _, p := range all {
				got = append(got, p.Pod+":"+string(p.Summary[:min(len(p.Summary), 9)]))
			}
			if !slices.Equal(got, texts) {
				t.Errorf("%s: %q", begin, got)
			}
		}
		want("first", "a:a is well", "b:bbbbbbbbb", "c:")
		want("within a second", "a:a is well", "b:bbbbbbbbb", "c:")
		if questions != 1 {
			t.Errorf("%d summaries were made for two questions within a second", questions)
		}
		time.Sleep(summaryFresh)
		synctest.Wait()
		want("later, b's is too long", "a:a is well", "b:", "c:")
		if questions != 2 {
			t.Errorf("%d summaries", questions)
		}
	})
}

type deafHandler struct{}

func (deafHandler) HandleEnvelope(registry.Envelope) {}
func (deafHandler) HandleReply(registry.Reply)       {}
func (deafHandler) HandleGap()                       {}

// TestSurvey: a process that is no pod gets the summaries of the live pods, and does not wait for one that is silent.
func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		startPod(t, store, "a").Fleet.Serve(func() []byte { return []byte("a is well") })
		silent, bus := store.NewBus(), store.NewBus()
		if err := silent.Listen(t.Context(), "b", deafHandler{}); err != nil {
			t.Fatal(err)
		}
		defer silent.Close(t.Context())
		defer bus.Close(t.Context())
		for _, pod := range []string{"b", "c"} { // c has gone without a word
			if _, err := store.Heartbeat(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		all, err := Survey(t.Context(), store, bus)
		if err != nil || len(all) != 3 || string(all[0].Summary) != "a is well" || all[1].Summary != nil ||
			all[2].Summary != nil || time.Since(began) > summaryWait {
			t.Errorf("%v, %v, after %v", all, err, time.Since(began))
		}
	})
}
