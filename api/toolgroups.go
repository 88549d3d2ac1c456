package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// groupRow is one definition of a tool with the number of connected sessions that offer exactly this one.
type groupRow struct {
	toolInfo
	SourceType string `json:"source_type"`
	Sessions   int    `json:"sessions"`
}

func (h *handler) groupRowOf(who auth.Identity, t registry.ToolSpec, sessions int) groupRow {
	return groupRow{toolInfo: h.toolInfoOf(direct(who), t, nil), SourceType: sourceRemote, Sessions: sessions}
}

// ownGroupRowOf is groupRowOf for a tool that runs in the gateway.
func (h *handler) ownGroupRowOf(who auth.Identity, t ownTool) groupRow {
	return groupRow{toolInfo: h.toolInfoOf(direct(who), t.ToolSpec, &t), SourceType: t.sourceType()}
}

// groupChunk is how many groups are asked for at once, because a definition can be long. maxGroupPages bounds how often
// that happens for one page.
const (
	groupChunk    = 64
	maxGroupPages = 2 * maxLimit / groupChunk
)

// groupedAll groups the tools of all sessions. The directory counts them, so the cost does not grow with the fleet.
func (h *handler) groupedAll(ctx context.Context, tq toolQuery, from cursor) (page, error) {
	rows, last, budget := []groupRow{}, from, newPageBudget(tq.limit)
	for _, t := range h.own().matching(tq, from) {
		if budget.spent() {
			return page{Tools: rows, NextCursor: last.String()}, nil
		}
		budget.addRow(t.Size() + rowOverhead)
		rows = append(rows, h.ownGroupRowOf(tq.who, t))
		last = cursor{Kind: cursorGroups, Name: t.Name, Builtin: true}
	}
	switch {
	case !tq.from(sourceRemote):
		return page{Tools: rows}, nil
	case budget.spent():
		return page{Tools: rows, NextCursor: last.String()}, nil
	}
	q := registry.OfferedToolQuery{Tenant: tq.who.Tenant, Name: tq.name, After: from.behindBuiltins().Name}
	for range maxGroupPages {
		q.Limit = min(budget.rows, groupChunk) // a page ends where one of the directory's does
		groups, next, err := h.Directory.OfferedTools(ctx, q)
		if err != nil {
			return page{}, err
		}
		for _, g := range groups {
			if tq.matches(g.Spec) {
				budget.addRow(g.Spec.Size() + rowOverhead)
				rows = append(rows, h.groupRowOf(tq.who, g.Spec, g.Sessions))
			}
		}
		if next == "" {
			return page{Tools: rows}, nil
		}
		q.After = next
		if budget.spent() {
			break
		}
	}
	return page{Tools: rows, NextCursor: cursor{Kind: cursorGroups, Name: q.After}.String()}, nil
}

// groupedSome groups the tools of the sessions that the filters select, or that the caller may see if that is not all.
// These have to be read one by one.
func (h *handler) groupedSome(ctx context.Context, tq toolQuery, from cursor) (page, error) {
	type place struct{ name, hash string }
	compare := func(a, b place) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.hash, b.hash))
	}
	groups := make(map[place]*registry.OfferedTool)
	rows, last, budget := []groupRow{}, from, newPageBudget(tq.limit)
	for _, t := range h.own().matching(tq, from) { // none if sessions are selected: they belong to none
		if budget.spent() {
			return page{Tools: rows, NextCursor: last.String()}, nil
		}
		budget.addRow(t.Size() + rowOverhead)
		rows = append(rows, h.ownGroupRowOf(tq.who, t))
		last = cursor{Kind: cursorNames, Name: t.Name, Builtin: true}
	}
	if !tq.from(sourceRemote) {
		return page{Tools: rows}, nil
	}
	err := h.fold(ctx, tq.sessions(), func(e registry.Entry) {
		for _, t := range e.Tools {
			if !tq.matches(t) {
				continue
			}
			at := place{t.Name, t.Hash()}
			if groups[at] == nil {
				groups[at] = &registry.OfferedTool{Spec: t}
			}
			groups[at].Sessions++
		}
	})
	if err != nil {
		return page{}, err
	}
	from = from.behindBuiltins()
	for _, at := range slices.SortedFunc(maps.Keys(groups), compare) {
		if compare(at, place{from.Name, from.Hash}) <= 0 {
			continue
		}
		if budget.spent() {
			return page{Tools: rows, NextCursor: last.String()}, nil
		}
		last = cursor{Kind: cursorNames, Name: at.name, Hash: at.hash}
		budget.addRow(groups[at].Spec.Size() + rowOverhead)
		rows = append(rows, h.groupRowOf(tq.who, groups[at].Spec, groups[at].Sessions))
	}
	return page{Tools: rows}, nil
}
