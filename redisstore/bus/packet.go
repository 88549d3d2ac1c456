package bus

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// Messages to one pod that leave at the same moment travel as one packet: a message that holds others, each prefixed
// with its length. Redis, and the client library at both ends, then handle one message instead of hundreds. That was
// most of what a call cost Redis under load. A packet holds no packets. A message that travels alone is sent unpacked.
const (
	maxPacked = 8 << 10  // bytes; a longer message travels alone: copying it costs as much as a packet saves
	maxPacket = 64 << 10 // bytes; so that many packets can be read at once
)

// outgoing is a message on its way to a pod.
type outgoing interface {
	to() string      // the pod
	message() []byte // encoded
}

// byPod groups messages by their target pod. Messages to one pod keep their order.
func byPod[T outgoing](all []T) map[string][]T {
	sorted := make(map[string][]T)
	first := all[0].to()
	if !slices.ContainsFunc(all, func(o T) bool { return o.to() != first }) {
		sorted[first] = all
		return sorted
	}
	for _, o := range all {
		sorted[o.to()] = append(sorted[o.to()], o)
	}
	return sorted
}

type packet[T outgoing] struct {
	items   []T
	payload []byte
}

func packets[T outgoing](items []T) []packet[T] {
	var packed []packet[T]
	for len(items) > 0 {
		n, size := 1, len(items[0].message())
		if size <= maxPacked {
			for _, o := range items[1:] {
				next := len(o.message())
				if next > maxPacked || size+next > maxPacket {
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

func pack[T outgoing](items []T, size int) packet[T] {
	if len(items) == 1 {
		return packet[T]{items: items, payload: items[0].message()}
	}
	b := make([]byte, 1, 1+size+len(items)*binary.MaxVarintLen16)
	b[0] = messagePacket
	for _, o := range items {
		b = appendField(b, o.message())
	}
	return packet[T]{items: items, payload: b}
}

var errPacket = errors.New("packet that is truncated or garbled")

// unpack calls each with every message of a packet. If the packet is broken, the messages before that place still
// count. Each message of a packet is a copy, so that a long call does not keep its neighbors in memory.
func unpack(payload string, each func(string)) error {
	if payload == "" || payload[0] != messagePacket {
		each(payload)
		return nil
	}
	c := coder{text: payload[1:]}
	for c.text != "" {
		m := c.field()
		if c.broken {
			return errPacket
		}
		each(strings.Clone(m))
	}
	return nil
}
