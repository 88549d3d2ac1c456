package redisstore

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// Messages to one pod that leave at the same moment travel as one: a bundle is a message that holds others, each with its
// length in front. Redis, and the client library at both ends, then handle one instead of hundreds, and that was most of
// what a call under load cost Redis. A bundle holds no bundles.
const (
	bundleItem = 8 << 10  // bytes; a longer message travels alone: copying it would cost what a bundle saves
	bundleFull = 64 << 10 // bytes; so that many bundles can be read at once
)

// outgoing is what is sent to a pod.
type outgoing interface {
	to() string      // the pod
	message() []byte // encoded
}

// byPod sorts a batch by where it goes. What goes to one pod stays in order.
func byPod[T outgoing](batch []T) map[string][]T {
	sorted := make(map[string][]T)
	first := batch[0].to()
	if !slices.ContainsFunc(batch, func(o T) bool { return o.to() != first }) {
		sorted[first] = batch
		return sorted
	}
	for _, o := range batch {
		sorted[o.to()] = append(sorted[o.to()], o)
	}
	return sorted
}

// parcel is what travels as one message.
type parcel[T outgoing] struct {
	items   []T
	payload []byte
}

// parcels packs what goes to one pod, in order.
func parcels[T outgoing](items []T) []parcel[T] {
	var packed []parcel[T]
	for len(items) > 0 {
		n, size := 1, len(items[0].message())
		if size <= bundleItem {
			for _, o := range items[1:] {
				next := len(o.message())
				if next > bundleItem || size+next > bundleFull {
					break
				}
				n, size = n+1, size+next
			}
		}
		packed = append(packed, pack(items[:n], size))
		items = items[n:]
	}
	return packed
}

func pack[T outgoing](items []T, size int) parcel[T] {
	if len(items) == 1 {
		return parcel[T]{items: items, payload: items[0].message()}
	}
	b := make([]byte, 1, 1+size+len(items)*binary.MaxVarintLen16)
	b[0] = messageBundle
	for _, o := range items {
		b = binary.AppendUvarint(b, uint64(len(o.message())))
		b = append(b, o.message()...)
	}
	return parcel[T]{items: items, payload: b}
}

var errBundle = errors.New("bundle that is cut short or garbled")

// unpack calls each with every message of a bundle, and of what is not a bundle with itself. Messages before the place where a
// bundle is broken count. Each is a copy of its own: a call that takes long must not keep its neighbours in memory.
func unpack(text string, each func(string)) error {
	if text == "" || text[0] != messageBundle {
		each(text)
		return nil
	}
	r := fieldReader{text: text[1:]}
	for r.text != "" {
		m := r.field()
		if r.broken {
			return errBundle
		}
		each(strings.Clone(m))
	}
	return nil
}
