package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/farhand/farhand/registry/legible"
)

// progressDelay is how long a wait must last before it is worth a line.
const progressDelay = 500 * time.Millisecond

// progress shows on a terminal that something is waited for, and for how long. The returned function ends it and
// wipes the line.
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

// table writes aligned columns. Cells may come from devices, so what a terminal would act on is made visible.
func table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine(cell, 60)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// shownID is how much of an id or a state is shown, in characters: more than any has.
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

// printable replaces what a terminal would interpret, or not show: a device must not be able to move the cursor.
func printable(text string) string {
	return legible.Expose(text)
}
