package blobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

const (
	sweepEvery = time.Minute
	sweepMost  = 1000             // files that one sweep removes
	sweepTime  = 30 * time.Second // of one sweep
	sweepGrace = 5 * time.Minute  // clocks of pods disagree

	relistMost  = 10          // listings in a row that find nothing, after which there is no bucket
	relistPause = time.Second // before each of them
)

// objectName returns a name for a file that nobody reads after its end. Names sort by that end, so the sweep finds what
// has expired at the beginning of the bucket, also what was left behind by a pod that died, or by a store that was
// emptied. They have no folders, which would stay behind.
func objectName(end time.Time) string { return fmt.Sprintf("%012d-%s", end.Unix(), rand.Text()) }

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
	files, relisted := s.bucket.List(&blob.ListOptions{}), 0
	for range sweepMost {
		file, err := files.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if gcerrors.Code(err) == gcerrors.NotFound && relisted < relistMost {
			select { // another pod removed a file while the folder was listed, or there is no bucket
			case <-ctx.Done():
				return err
			case <-time.After(relistPause):
			}
			files, relisted = s.bucket.List(&blob.ListOptions{}), relisted+1
			continue
		}
		if err != nil {
			return err
		}
		relisted = 0
		end, _, ok := strings.Cut(file.Key, "-")
		seconds, err := strconv.ParseInt(end, 10, 64)
		if !ok || err != nil { // not one of ours
			continue
		}
		if now.Before(time.Unix(seconds, 0).Add(sweepGrace)) {
			return nil
		}
		if err := s.bucket.Delete(ctx, file.Key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return err
		}
	}
	return nil
}
