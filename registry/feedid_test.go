package registry

import (
	"errors"
	"testing"
	"time"
)

// What a caller passes to continue from is either an id as it was returned, or refused: nothing else may reach a store.
func TestFeedIDs(t *testing.T) {
	const longest = "999999999999999999"
	for text, want := range map[string]FeedID{
		"": {}, "0-0": {}, "5-1": {5, 1}, "007-1": {7, 1}, longest + "-" + longest: {1e18 - 1, 1e18 - 1},
	} {
		if got, err := ParseFeedID(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"5", "5-", "-1", "-5-1", "5-1-1", "5-1\n", " 5-1", "+5-1", "5-*", "$", "1" + longest + "-0", "٥-١",
	} {
		if got, err := ParseFeedID(text); !errors.Is(err, CodeInvalidRequest) || got != (FeedID{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	// as texts they would be in another order
	for i, ids := 1, []string{"", "9-1", "9-10", "10-0", "10-2", "100-0"}; i < len(ids); i++ {
		if CompareFeedIDs(ids[i-1], ids[i]) >= 0 || CompareFeedIDs(ids[i], ids[i-1]) <= 0 {
			t.Errorf("%q is not before %q", ids[i-1], ids[i])
		}
	}
}

// Ids grow, also when the clock goes back.
func TestFeedIDsGrow(t *testing.T) {
	id := FeedID{}
	for _, ms := range []int64{1000, 1000, 900, 1001} {
		next := id.Next(time.UnixMilli(ms))
		if !id.Before(next) {
			t.Errorf("%v after %v", next, id)
		}
		id = next
	}
	if id != (FeedID{1001, 0}) {
		t.Errorf("%v", id)
	}
}
