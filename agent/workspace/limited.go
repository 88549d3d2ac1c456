package workspace

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
)

// watchPause is the time between two looks at what a command has written. A fast disk takes some hundred megabytes in
// it, which is what a workspace may exceed its bound by; RLIMIT_FSIZE bounds a single file exactly.
const watchPause = 500 * time.Millisecond

// Limited returns an engine that ends a command when its workspace is full, or the disk is. A command in a workspace
// that is full already may run as long as it adds nothing, so that it can remove something.
func (w *Workspaces) Limited(e sandbox.Engine) sandbox.Engine { return limited{e, w.cfg.MinFree} }

type limited struct {
	sandbox.Engine
	minFree int64
}

// Down returns what the engine says, for sandbox.Down.
func (l limited) Down() error { return sandbox.Down(l.Engine) }

// Run implements sandbox.Engine.
func (l limited) Run(ctx context.Context, w sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.Limits.FileSize == 0 {
		c.Limits.FileSize = w.MaxBytes
	}
	before, err := sandbox.Measure(w, ctx.Done())
	if err != nil {
		return sandbox.Exit{}, err
	}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends before Run does
		defer close(watched)
		l.watch(w, before, done, cancel)
	}()
	exit, err := l.Engine.Run(ctx, w, c)
	close(done)
	<-watched
	return exit, err
}

// watch looks at the workspace until the command is done. Most commands are done before its first look. A folder that
// cannot be looked into is not endured, even if it was so before: a command has until the first look to mend that.
func (l limited) watch(
	w sandbox.Workspace, before sandbox.Usage, done <-chan struct{}, cancel context.CancelCauseFunc,
) {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now, err := sandbox.Measure(w, done)
		if err != nil {
			continue // what cannot be looked at now is looked at next
		}
		switch {
		case now.Locked:
			cancel(fmt.Errorf("%w: a folder in it cannot be looked into, so it may hold anything; make it readable",
				sandbox.ErrFull))
			return
		case now.Bytes > max(w.MaxBytes, before.Bytes), now.Files > max(w.MaxFiles, before.Files):
			cancel(fmt.Errorf("%w: it may hold %d MiB in %d files and folders; remove some", sandbox.ErrFull,
				w.MaxBytes>>20, w.MaxFiles))
			return
		case now.Free < l.minFree:
			cancel(fmt.Errorf("%w: the disk of the gateway has no more room", sandbox.ErrFull))
			return
		}
	}
}
