package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	// freePause is the interval at which the free disk space is checked while a command runs. lookPause is the interval
	// at which its workspace is measured. A fast disk writes some hundred megabytes in lookPause, so a workspace may
	// exceed its quota by that much. RLIMIT_FSIZE bounds a single file exactly.
	freePause = 100 * time.Millisecond
	lookPause = 500 * time.Millisecond

	// searchPause is the interval between searches for open files without a name. A search walks all processes of the
	// machine.
	searchPause = 2 * time.Second

	// lookShare is the minimum pause between two measurements, as a multiple of the duration of the last one.
	lookShare = 4

	// dropShare is the fraction of a workspace's quota, as a divisor. If the free disk space drops by more than that,
	// the workspace is measured and searched immediately.
	dropShare = 4

	// unseenBytes and unseenFiles limit how far the free space and file count of the disk may drop while a command
	// cleans up a workspace that cannot be measured. They exceed what such a command needs, because others also write
	// to the disk.
	unseenBytes = 256 << 20
	unseenFiles = 20_000
)

// Limited returns an engine that ends a command when its workspace or the disk is full. If either is already full, it
// runs one command at a time, which can remove files but not write to them.
func (w *Workspaces) Limited(e sandbox.Engine) sandbox.Engine { return limited{e, w} }

type limited struct {
	sandbox.Engine
	all *Workspaces
}

// Down returns the engine's state, for sandbox.Down.
func (l limited) Down() error { return sandbox.Down(l.Engine) }

// Run implements sandbox.Engine.
func (l limited) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	if c.Stdin != nil {
		defer c.Stdin.Close() //nolint:errcheck // it is only read
	}
	before, full, err := l.usage(w, ctx.Done())
	switch {
	case ctx.Err() != nil:
		return sandbox.Exit{}, context.Cause(ctx)
	case err != nil:
		return sandbox.Exit{}, fmt.Errorf("%w: measure the workspace: %w", sandbox.ErrUnavailable, err)
	case full != nil:
		return l.clean(ctx, w, c, before, full)
	}
	c.Limits.FileSize = cmp.Or(c.Limits.FileSize, w.MaxBytes)
	return l.watched(ctx, w, c, state{Usage: before})
}

// state is the workspace and the disk before a command.
type state struct {
	sandbox.Usage
	full bool              // the command cannot write
	free sandbox.DiskSpace // of the disk
}

// clean runs a command in a full workspace, if cleaning admits it. The command can remove files, but not write to them.
func (l limited) clean(
	ctx context.Context, w sandbox.Workspace, c sandbox.Command, before sandbox.Usage, full error,
) (sandbox.Exit, error) {
	if err := l.all.cleaning.begin(w.ID, full); err != nil {
		return sandbox.Exit{}, err
	}
	defer func() {
		after, err := sandbox.Measure(w, nil)
		added := 0.0
		if err == nil {
			added = grown(before, after)
		}
		l.all.cleaning.end(w.ID, added)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTime,
		fmt.Errorf("%w. A command that frees space may run for %v", full, cleanTime))
	defer cancel()
	if c.Stderr != nil {
		text := fmt.Sprintf("[%v. Until then commands can remove files but not write any]\n", full)
		if _, err := io.WriteString(c.Stderr, text); err != nil {
			return sandbox.Exit{}, err
		}
	}
	c.Limits.FileSize = 1 // zero would mean no limit
	return l.watched(ctx, w, c, state{Usage: before, full: true})
}

// watched runs a command and watches its workspace.
func (l limited) watched(
	ctx context.Context, w sandbox.Workspace, c sandbox.Command, before state,
) (sandbox.Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watched := make(chan struct{})
	before.free, _ = l.all.cfg.Free(w)
	go func() { // ends before watched returns
		defer close(watched)
		l.watch(w, before, done, cancel)
	}()
	exit, err := l.Engine.Run(ctx, w, c)
	close(done)
	<-watched
	l.all.disk.touch(w)
	return exit, err
}

// watch checks the workspace until the command ends. Most commands end before the first check.
func (l limited) watch(
	w sandbox.Workspace, before state, done <-chan struct{}, cancel context.CancelCauseFunc,
) {
	tick := time.NewTicker(freePause)
	defer tick.Stop()
	looked, searched, took := time.Now(), time.Now(), time.Duration(0)
	then := before.free.Bytes // at the last measurement
	nameless := int64(0)      // at the last search
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		free, err := l.all.cfg.Free(w)
		pressed := err != nil || free.Bytes < l.all.cfg.MinFree && !before.full ||
			then-free.Bytes > w.MaxBytes/dropShare
		since := time.Since(looked)
		if since < lookShare*took || since < lookPause && !pressed {
			continue
		}
		looked, then = time.Now(), free.Bytes
		if pressed || time.Since(searched) >= searchPause {
			searched, nameless = looked, sandbox.Nameless(w)
		}
		if why := l.exceeded(w, before, nameless, done); why != nil {
			cancel(why)
			return
		}
		took = time.Since(looked)
	}
}

// exceeded returns why a command must end, or nil. nameless is the size of its open files without a name, in bytes.
// Unmeasurable content counts as too much, unless it was there before the command, which may be about to remove it.
func (l limited) exceeded(w sandbox.Workspace, before state, nameless int64, done <-chan struct{}) error {
	free, err := l.all.cfg.Free(w)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: its free space cannot be read: %w", sandbox.ErrFull, err)
	}
	now, gone := sandbox.Measure(w, done)
	if err != nil || gone != nil {
		return nil // the command has ended, or the workspace was removed
	}
	now.Bytes += nameless
	if before.Unseen != nil {
		now.Unseen = nil
	}
	if before.full { // removing files takes a little space itself, for example for a log
		w.MaxBytes = max(w.MaxBytes, before.Bytes+slackBytes)
		w.MaxFiles = max(w.MaxFiles, before.Files+slackFiles)
	}
	if full := now.Full(w); full != nil {
		return full
	}
	if before.full {
		return unseenGrowth(before, free)
	}
	// A command that adds nothing may continue while half of MinFree is left.
	least := l.all.cfg.MinFree
	if free.Bytes < least && now.Bytes > before.Bytes+slackBytes || free.Bytes < least/2 {
		return errNoRoom
	}
	if why := now.OverShare(w, 0); now.Bytes > before.Bytes+slackBytes {
		return why
	}
	return nil
}

// unseenGrowth returns why a command that cleans up an unmeasurable workspace must end, or nil: it may add empty files
// where they cannot be counted.
func unseenGrowth(before state, free sandbox.DiskSpace) error {
	bytes, files := before.free.Bytes-free.Bytes, before.free.Files-free.Files
	if before.Unseen == nil || bytes <= unseenBytes && files <= unseenFiles {
		return nil
	}
	return fmt.Errorf("%w: part of it cannot be counted (%w), and the disk lost %d MiB and %d files meanwhile; "+
		"remove that part first, or ask the operator", sandbox.ErrFull, before.Unseen, bytes>>20, files)
}

var errNoRoom = fmt.Errorf("%w: the gateway's disk is full; remove files, or ask the operator",
	sandbox.ErrFull)

// usage returns the usage of a workspace, and in full why a command may not add to it. It checks the disk first.
func (l limited) usage(w sandbox.Workspace, done <-chan struct{}) (used sandbox.Usage, full, err error) {
	free, err := l.all.cfg.Free(w)
	if err != nil {
		return used, nil, err
	}
	used, err = sandbox.Measure(w, done)
	if full = used.Full(w); full == nil && free.Bytes < l.all.cfg.MinFree {
		full = errNoRoom
	}
	if full == nil && err == nil {
		full = used.OverShare(w, 0)
	}
	return used, full, err
}

// grown returns what a command added to a full workspace, as a fraction of the allowed slack. It returns 2 if the
// workspace cannot be measured afterwards.
func grown(before, after sandbox.Usage) float64 {
	if after.Unseen != nil {
		return 2
	}
	return max(float64(after.Bytes-before.Bytes)/slackBytes, float64(after.Files-before.Files)/slackFiles)
}

const (
	cleanTime  = time.Minute // limit for a command in a full workspace
	cleanPause = time.Minute // per pause, commands there may add slackBytes and slackFiles
	slackBytes = 64 << 10    // empty files and folders also take space
	slackFiles = 8
)

// cleaning admits one command at a time to each full workspace, and none for cleanPause after commands exceed the
// slack.
type cleaning struct {
	mu     sync.Mutex
	spaces map[string]cleaner // by the id of the workspace
}

type cleaner struct {
	running bool
	added   float64   // fraction of the slack
	until   time.Time // when added is reset
}

// begin admits a command, or returns why not. full is why the workspace is full.
func (c *cleaning) begin(id string, full error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for other, s := range c.spaces {
		if !s.running && !now.Before(s.until) {
			delete(c.spaces, other)
		}
	}
	s, found := c.spaces[id]
	switch {
	case found && s.running:
		return fmt.Errorf("%w. Another command is freeing space: wait for it", full)
	case s.added > 1:
		return fmt.Errorf("%w. Commands have added files: the next command may run in %v", full,
			s.until.Sub(now).Round(time.Second))
	}
	if c.spaces == nil {
		c.spaces = map[string]cleaner{}
	}
	s.running = true
	c.spaces[id] = s
	return nil
}

// end records that a command has ended, and the fraction of the slack that it used.
func (c *cleaning) end(id string, added float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.spaces[id]
	s.running = false
	if added > 0 {
		s.added, s.until = s.added+added, time.Now().Add(cleanPause)
	}
	c.spaces[id] = s
	if s.added == 0 {
		delete(c.spaces, id)
	}
}
