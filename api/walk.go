package api

import (
	"context"

	"github.com/farhand/farhand/registry"
)

const (
	// maxPages bounds how many pages of the directory one page of a list is made from.
	maxPages = 20

	// maxSessionPage bounds one page asked of the directory: sessions come with all their tools.
	maxSessionPage = 100

	// maxFold bounds how many sessions are read for an answer that needs all of them at once.
	maxFold = 5000
)

// walk visits up to q.Limit sessions, or until visit returns false. It returns the place of the next page, nil when
// there is none. The directory may return fewer sessions than asked for and still have more, so walk reads up to
// maxPages.
func (h *handler) walk(
	ctx context.Context, q registry.Query, visit func(registry.Entry) bool,
) (*registry.Cursor, error) {
	remaining := q.Limit
	for range maxPages {
		q.Limit = min(remaining, maxSessionPage)
		page, next, err := h.Directory.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i, e := range page {
			if !visit(e) && (i+1 < len(page) || next != nil) {
				return &registry.Cursor{Generation: e.Session.Generation, Session: e.Session.Key.Session}, nil
			}
		}
		remaining -= len(page)
		if next == nil {
			return nil, nil
		}
		q.After = *next
		if remaining <= 0 {
			break
		}
	}
	return &q.After, nil
}

// fold visits every session that matches q, or fails when they are too many for one answer.
func (h *handler) fold(ctx context.Context, q registry.Query, visit func(registry.Entry)) error {
	q.Limit = maxSessionPage
	for range 2 * maxFold / maxSessionPage { // pages may be short
		page, next, err := h.Directory.List(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			visit(e)
		}
		if next == nil {
			return nil
		}
		q.After = *next
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"The filters match more sessions than one answer can be made from (about %d). Narrow them.", maxFold)
}
