package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// progressDelay is how long a wait must last before it is shown.
const progressDelay = 500 * time.Millisecond

// progress shows on a terminal what is awaited, and for how long. The returned function ends it and wipes the line.
func (a *application) progress(what string) (done func()) {
	if !isTerminal(a.err) {
		return func() {}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		start := time.Now()
		ticker := time.NewTicker(progressDelay)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				fmt.Fprint(a.err, "\r\033[K")
				return
			case <-ticker.C:
				fmt.Fprintf(a.err, "\r\033[K%s… %.0fs", what, time.Since(start).Seconds())
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
	}
}

// A cell of a table is cut, in characters. The ids of OpenClaw nodes, the longest, are not cut: people copy them.
const (
	shownCell = 60
	shownWord = 64 // a cell without spaces
)

// table writes aligned columns. Cells may come from devices, so control characters are made visible.
func table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			limit := shownCell
			if !strings.Contains(cell, " ") {
				limit = shownWord
			}
			cells[i] = oneLine(cell, limit)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// shownID bounds how much of an id or a state is shown, in characters. All are shorter.
const shownID = 128

// oneLine makes text printable, on one line, and at most limit characters long.
func oneLine(text string, limit int) string {
	runes := []rune(strings.Join(strings.Fields(printable(text)), " "))
	if len(runes) > limit {
		runes = append(runes[:limit-1], '…')
	}
	if len(runes) == 0 {
		return "-"
	}
	return string(runes)
}

// printable makes control and invisible characters visible: a device must not be able to move the cursor.
func printable(text string) string {
	return textsafe.Expose(text)
}

const (
	// maxCallEvent bounds one event of a call, in bytes.
	maxCallEvent = 1 << 20
	// awayLimit is how long a call is followed while no gateway answers.
	awayLimit = 2 * time.Minute
	// cancelTimeout bounds the cancellation of a call after an interrupt.
	cancelTimeout = 5 * time.Second
)

// follow shows the progress of a call on standard error until it has ended, and returns its record. If ctx ends first,
// it cancels the call.
func (a *application) follow(ctx context.Context, r remote, id string) (json.RawMessage, error) {
	path := "/api/calls/" + url.PathEscape(id)
	record, err := a.untilEnded(ctx, r, path)
	if ctx.Err() != nil {
		cancelCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("interrupted; call %s is being cancelled", id),
			r.call(cancelCtx, http.MethodDelete, path, nil))
	}
	return record, err
}

// untilEnded shows the progress of a call and returns its record when that is final. A stream may end earlier, for
// example when its pod stops.
func (a *application) untilEnded(ctx context.Context, r remote, path string) (json.RawMessage, error) {
	var away time.Time // since when no gateway answers; zero: one does
	for last := ""; ; {
		began := time.Now()
		var record []byte
		var err error
		if last, err = a.showProgress(ctx, r, path+"/events", last); err == nil || isAway(err) {
			record, err = r.do(ctx, http.MethodGet, path, url.Values{"wait_ms": {"10000"}}, nil)
		}
		if isAway(err) && ctx.Err() == nil {
			if away.IsZero() {
				away = time.Now()
				fmt.Fprintln(a.err, "waiting for the gateway:", printable(err.Error()))
			}
			if time.Since(away) < awayLimit {
				pause.For(ctx, streamPause)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		away = time.Time{}
		var known wire.CallRecord
		if err := decodeAnswer(record, &known); err != nil {
			return nil, err
		}
		if known.Status != registry.StatusPending && known.Status != registry.StatusExecuting {
			return record, nil
		}
		if rest := streamPause - time.Since(began); rest > 0 { // the gateway, or a proxy, did not wait
			_ = pause.For(ctx, rest)
		}
	}
}

// showProgress prints the events after the one with id last until the stream ends, and returns the id of the last
// event.
func (a *application) showProgress(ctx context.Context, r remote, path, last string) (string, error) {
	resp, err := r.events(ctx, http.MethodGet, path, nil, nil, last)
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	for events := ssereader.New(resp.Body, maxCallEvent); ; {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = cmp.Or(event.ID, last)
		var e wire.CallEvent
		if json.Unmarshal(event.Data, &e) != nil {
			continue
		}
		if text := eventText(e); text != "" {
			fmt.Fprintln(a.err, text)
		}
	}
}

func eventText(e wire.CallEvent) string {
	if e.State != "" {
		return oneLine(string(e.State), shownID)
	}
	var parts []string
	switch {
	case e.Progress != nil && e.Total != nil && *e.Total > 0:
		parts = append(parts, fmt.Sprintf("%.0f %%", *e.Progress / *e.Total * 100))
	case e.Progress != nil:
		parts = append(parts, fmt.Sprintf("%g", *e.Progress))
	}
	for _, part := range []string{e.Message, e.Chunk} {
		if part != "" {
			parts = append(parts, oneLine(part, 200))
		}
	}
	return strings.Join(parts, "  ")
}
