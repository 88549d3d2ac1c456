package browser

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chromedp/cdproto/cdp"
)

// refs are the elements of the last snapshot of a tab that something can be done to. Numbers are never used again, so
// that one of an earlier snapshot is known for what it is.
type refs struct {
	first, next int // numbers of the last snapshot, from 1; next is free
	of          []element
}

// element is where an element is.
type element struct {
	node  cdp.BackendNodeID
	frame cdp.FrameID
}

// expire makes all refs stale.
func (r *refs) expire() { r.first, r.of = r.next, nil }

// add returns the ref of an element.
func (r *refs) add(e element) string {
	r.of = append(r.of, e)
	r.next++
	return "e" + strconv.Itoa(r.next)
}

// find returns the element of a ref. Brackets around it are taken off.
func (r *refs) find(ref string) (element, error) {
	ref = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(ref), "["), "]")
	n, err := strconv.Atoi(strings.TrimPrefix(ref, "e"))
	switch {
	case err != nil || !strings.HasPrefix(ref, "e") || n < 1 || n > r.next:
		return element{}, failure(fmt.Sprintf("there is no element %q: take a new snapshot, and use a ref of it such "+
			"as e1", short(ref, maxShown)))
	case n <= r.first:
		return element{}, stale(ref)
	}
	return r.of[n-r.first-1], nil
}

func stale(ref string) error {
	return failure(fmt.Sprintf("the ref %s is stale: the page has changed since, or it is of an earlier snapshot; "+
		"take a new snapshot and use its refs", short(ref, maxShown)))
}
