package registry

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// FeedID is a position in a log: an entry's time in milliseconds, and a sequence number within that millisecond. Ids
// keep growing over a restart of the process, so that returning readers miss no new entries.
type FeedID struct{ Milli, Seq int64 }

// feedIDPattern also matches the ids of Redis streams.
var feedIDPattern = regexp.MustCompile(`^\d{1,18}-\d{1,18}$`)

// ParseFeedID parses an id. The empty id is the beginning. Malformed ids fail with CodeInvalidRequest.
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

// CheckFeedID checks the format of an entry's id in a feed or in the event log of a call. It fails with
// CodeInvalidRequest.
func CheckFeedID(text string) error {
	if !feedIDPattern.MatchString(text) {
		return Errorf(CodeInvalidRequest,
			"The id of the entry to continue from is malformed; pass one that was returned.")
	}
	return nil
}

// CompareFeedIDs orders the ids of one feed. Empty and malformed ids come first.
func CompareFeedIDs(a, b string) int {
	x, _ := ParseFeedID(a)
	y, _ := ParseFeedID(b)
	return x.Compare(y)
}

func (id FeedID) String() string {
	return strconv.FormatInt(id.Milli, 10) + "-" + strconv.FormatInt(id.Seq, 10)
}

// Next returns the id of an entry added at now after id. It grows even if the clock goes back.
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
