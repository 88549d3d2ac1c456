package registry

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// FeedID is a place in a log: the time of an entry in milliseconds, and a number among those of the same time. Ids
// keep growing over a restart of the process, so a reader that comes back does not wait for the past.
type FeedID struct{ Milli, Seq int64 }

// feedIDPattern is also what Redis prints for the ids of a stream.
var feedIDPattern = regexp.MustCompile(`^\d{1,18}-\d{1,18}$`)

// ParseFeedID reads an id. The empty one is the beginning. Anything else is CodeInvalidRequest.
func ParseFeedID(text string) (FeedID, error) {
	if text == "" {
		return FeedID{}, nil
	}
	if err := CheckFeedID(text); err != nil {
		return FeedID{}, err
	}
	ms, seq, _ := strings.Cut(text, "-")
	var id FeedID
	id.Milli, _ = strconv.ParseInt(ms, 10, 64) // cannot fail: at most 18 digits
	id.Seq, _ = strconv.ParseInt(seq, 10, 64)
	return id, nil
}

// CheckFeedID reports whether text can be the id of an entry in a feed or in the event log of a call. The error is
// CodeInvalidRequest.
func CheckFeedID(text string) error {
	if !feedIDPattern.MatchString(text) {
		return Errorf(CodeInvalidRequest,
			"The id of the entry to continue from is malformed; pass one that was returned.")
	}
	return nil
}

// CompareFeedIDs orders the ids of one feed; the empty one, and what is none, comes first.
func CompareFeedIDs(a, b string) int {
	x, _ := ParseFeedID(a)
	y, _ := ParseFeedID(b)
	return x.Compare(y)
}

func (id FeedID) String() string {
	return strconv.FormatInt(id.Milli, 10) + "-" + strconv.FormatInt(id.Seq, 10)
}

// Next returns the id of an entry added at now behind id. It grows also when the clock goes back.
func (id FeedID) Next(now time.Time) FeedID {
	if ms := now.UnixMilli(); ms > id.Milli {
		return FeedID{Milli: ms}
	}
	return FeedID{id.Milli, id.Seq + 1}
}

func (id FeedID) Compare(other FeedID) int {
	return cmp.Or(cmp.Compare(id.Milli, other.Milli), cmp.Compare(id.Seq, other.Seq))
}

func (id FeedID) Before(other FeedID) bool { return id.Compare(other) < 0 }
