package workspace

import (
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
	// freePause is the time between two looks at the free space of the disk while a command runs, and lookPause between
	// two looks at its workspace. A fast disk takes some hundred megabytes in the latter, which is what a workspace may
	// exceed its bound by; RLIMIT_FSIZE bounds a single file exactly.
	freePause = 100 * time.Millisecond
	lookPause = 500 * time.Millisecond

	// searchPause is the time between two searches for files that are open and have no name, which go through the
	// processes of the machine.
	searchPause = 2 * time.Second

	// lookShare is how many times longer than a look takes there is none.
	lookShare = 4

	// dropShare is the part of a workspace's bound by which the free space of the disk may drop before the next look,
	// with a search, comes at once.
	dropShare = 4

	// unseenBytes and unseenFiles are by how much the free room of the disk may drop while a command makes room in a
	// workspace that cannot be counted. Others write on the disk, too, so it is more than such a command needs.
	unseenBytes = 256 << 20
	unseenFiles = 20_000
)

// Limited returns an engine that ends a command when its workspace is full, or the disk is. When it is so before the
// command, one command runs at a time, and can remove files but not write any.
func (w *Workspaces) Limited(e sandbox.Engine) sandbox.Engine { return limited{e, w} }

type limited struct {
	sandbox.Engine
	all *Workspaces
}

// Down returns what the engine says, for sandbox.Down.
func (l limited) Down() error { return sandbox.Down(l.Engine) }

// Run implements sandbox.Engine.
func (l limited) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	if c.Stdin != nil {
		defer c.Stdin.Close() //nolint:errcheck // it is only read
	}
	before, full, err := l.look(w, ctx.Done())
	switch {
	case ctx.Err() != nil:
		return sandbox.Exit{}, context.Cause(ctx)
	case err != nil:
		return sandbox.Exit{}, fmt.Errorf("%w: measure the workspace: %w", sandbox.ErrUnavailable, err)
	case full != nil:
		return l.clean(ctx, w, c, before, full)
	}
	if c.Limits.FileSize == 0 {
		c.Limits.FileSize = w.MaxBytes
	}
	return l.watched(ctx, w, c, state{Usage: before})
}

// state is how a command found its workspace.
type state struct {
	sandbox.Usage
	full bool         // so that it cannot write
	free sandbox.Room // of the disk
}

// clean runs a command in a workspace that is full, if it may: it can remove files, but write none.
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
		fmt.Errorf("%w. A command that makes room has %v", full, cleanTime))
	defer cancel()
	if c.Stderr != nil {
		text := fmt.Sprintf("[%v. Until then commands can remove files, but write none]\n", full)
		if _, err := io.WriteString(c.Stderr, text); err != nil {
			return sandbox.Exit{}, err
		}
	}
	c.Limits.FileSize = 1 // zero would be no bound
	return l.watched(ctx, w, c, state{Usage: before, full: true})
}

// watched runs a command and watches the workspace meanwhile.
func (l limited) watched(
	ctx context.Context, w sandbox.Workspace, c sandbox.Command, before state,
) (sandbox.Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watched := make(chan struct{})
	before.free, _ = l.all.cfg.Free(w)
	go func() { // ends before Run does
		defer close(watched)
		l.watch(w, before, done, cancel)
	}()
	exit, err := l.Engine.Run(ctx, w, c)
	close(done)
	<-watched
	return exit, err
}

// watch looks at the workspace until the command is done. Most commands are done before its first look.
func (l limited) watch(
	w sandbox.Workspace, before state, done <-chan struct{}, cancel context.CancelCauseFunc,
) {
	tick := time.NewTicker(freePause)
	defer tick.Stop()
	looked, searched, took := time.Now(), time.Now(), time.Duration(0)
	then := before.free.Bytes // at the last look
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

// exceeded says why a command has to end, which has that many bytes in files without a name; nil: it may go on. What
// cannot be counted counts as too much, unless it was so before the command: then it may be about to mend that.
func (l limited) exceeded(w sandbox.Workspace, before state, nameless int64, done <-chan struct{}) error {
	free, err := l.all.cfg.Free(w)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: its disk cannot be asked: %w", sandbox.ErrFull, err)
	}
	now, gone := sandbox.Measure(w, done)
	if err != nil || gone != nil {
		return nil // the command is done, or the workspace was removed
	}
	now.Bytes += nameless
	if before.Unseen != nil {
		now.Unseen = nil
	}
	if before.full { // removing takes a little room itself, and what is said to a log
		w.MaxBytes = max(w.MaxBytes, before.Bytes+slackBytes)
		w.MaxFiles = max(w.MaxFiles, before.Files+slackFiles)
	}
	if full := now.Full(w); full != nil {
		return full
	}
	if before.full {
		return unseenGrowth(before, free)
	}
	// Commands that add nothing may go on while there is some room.
	least := l.all.cfg.MinFree
	if free.Bytes < least && now.Bytes > before.Bytes+slackBytes || free.Bytes < least/2 {
		return errNoRoom
	}
	if why := now.OverShare(w, 0); now.Bytes > before.Bytes+slackBytes {
		return why
	}
	return nil
}

// unseenGrowth says why a command has to end that makes room in a workspace which cannot be counted: it may add empty
// files where nobody sees them.
func unseenGrowth(before state, free sandbox.Room) error {
	bytes, files := before.free.Bytes-free.Bytes, before.free.Files-free.Files
	if before.Unseen == nil || bytes <= unseenBytes && files <= unseenFiles {
		return nil
	}
	return fmt.Errorf("%w: not all of it can be counted (%w), and the disk lost %d MiB and %d files meanwhile; "+
		"remove that first, or ask the operator", sandbox.ErrFull, before.Unseen, bytes>>20, files)
}

var errNoRoom = fmt.Errorf("%w: the disk of the gateway has no more room; remove files, or ask its operator",
	sandbox.ErrFull)

// look returns what a workspace takes, and why nothing may be added to it: the disk is asked first.
func (l limited) look(w sandbox.Workspace, done <-chan struct{}) (used sandbox.Usage, full, err error) {
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

// grown returns what a command has added to a workspace that was full, as a share of what it may; more than one if it
// left it so that nobody can tell.
func grown(before, after sandbox.Usage) float64 {
	if after.Unseen != nil {
		return 2
	}
	return max(float64(after.Bytes-before.Bytes)/slackBytes, float64(after.Files-before.Files)/slackFiles)
}

const (
	cleanTime  = time.Minute // for a command in a full workspace
	cleanPause = time.Minute // in which commands there may add slackBytes and slackFiles, or the next one waits
	slackBytes = 64 << 10    // empty files and folders take room, too
	slackFiles = 8
)

// cleaning lets one command at a time into each full workspace, and none for cleanPause after those that added to it.
type cleaning struct {
	mu     sync.Mutex
	spaces map[string]cleaner // by the id of the workspace
}

type cleaner struct {
	running bool
	added   float64   // share of what may be added
	until   time.Time // when that is forgotten
}

// begin lets a command in, or says why not. full is why the workspace is full.
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
		return fmt.Errorf("%w. Another command is making room: wait for it", full)
	case s.added > 1:
		return fmt.Errorf("%w. Commands there have added files: the next one may run in %v", full,
			s.until.Sub(now).Round(time.Second))
	}
	if c.spaces == nil {
		c.spaces = map[string]cleaner{}
	}
	s.running = true
	c.spaces[id] = s
	return nil
}

// end notes that a command has ended, and what share it has added of what may be added to the workspace.
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
