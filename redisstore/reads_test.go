package redisstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// While as many records of one tenant are read as may be, and more of its reads wait, another tenant reads its own.
func TestReadsAreShared(t *testing.T) {
	s := storeOn(t, Options{})
	rec := registry.NewRecord(registry.NewCallID(), "other", "tool", nil)
	if _, _, err := s.CreateCall(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	other := testkit.Alone(t, "call record reads", func() error {
		got, err := s.ReadCall(t.Context(), "other", rec.CallID)
		if err == nil && got.CallID != rec.CallID {
			err = fmt.Errorf("read %+v", got)
		}
		return err
	})
	for range maxReads {
		turn, err := s.reads.Try(share.Owner{Tenant: "hostile"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer turn.Release()
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 10)
	for range cap(done) {
		go func() {
			_, err := s.ReadCall(ctx, "hostile", rec.CallID)
			done <- err
		}()
	}
	other.Crowded()
	leave()
	for range cap(done) {
		if err := <-done; err == nil {
			t.Error("the hostile tenant reads more than it may")
		}
	}
}
