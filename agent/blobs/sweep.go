package blobs

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	sweepEvery = time.Minute
	sweepMost  = 1000             // files that one sweep removes
	sweepTime  = 30 * time.Second // of one sweep
	sweepGrace = 5 * time.Minute  // clocks of pods disagree

)

// objectName returns a name for a file that nobody reads after its end. Names sort by that end, so the sweep finds what
// has expired at the beginning of the bucket, also what was left behind by a pod that died, or by a store that was
// emptied. They have no folders, which would stay behind.
func objectName(end time.Time) string { return namePrefix(end) + "-" + rand.Text() }

// namePrefix begins the names of files that end at a time.
func namePrefix(end time.Time) string { return fmt.Sprintf("%012d", end.Unix()) }

// sweepUntil removes what has expired until ctx ends.
func (s *Service) sweepUntil(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("expired files not removed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweep removes the files that have expired by now, in bounded steps. Several pods may sweep at once.
func (s *Service) sweep(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	names, err := s.bucket.before(ctx, namePrefix(now.Add(-sweepGrace)), sweepMost)
	if err != nil {
		return err
	}
	for _, name := range names {
		end, _, ok := strings.Cut(name, "-")
		if _, err := strconv.ParseInt(end, 10, 64); !ok || err != nil { // not one of ours
			continue
		}
		if err := s.bucket.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
