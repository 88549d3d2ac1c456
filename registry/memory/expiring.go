package memory

import (
	"maps"
	"time"
)

// expiring is a map whose values have a life: V is a pointer to what embeds a life. A value that has expired is not
// found any more, and purge removes it. The map is guarded by the lock of its owner.
type expiring[K comparable, V interface{ end() time.Time }] map[K]V

// life is how long a value lives.
type life struct{ expires time.Time }

func (l *life) end() time.Time { return l.expires }

// get returns the value of a key, nil if there is none or it has expired.
func (m expiring[K, V]) get(key K, now time.Time) (value V) {
	if v, ok := m[key]; ok && now.Before(v.end()) {
		value = v
	}
	return value
}

// purge removes what has expired, and returns how many values it removed.
func (m expiring[K, V]) purge(now time.Time) int {
	before := len(m)
	maps.DeleteFunc(m, func(_ K, v V) bool { return !now.Before(v.end()) })
	return before - len(m)
}

// purgesPerLife is how often, during the life of what is kept, a writer removes what has expired.
const purgesPerLife = 16

// throttle bounds how often something is done.
type throttle struct{ last time.Time }

// due reports whether it is time to do it again, which the caller then does.
func (t *throttle) due(now time.Time, every time.Duration) bool {
	if now.Sub(t.last) < every {
		return false
	}
	t.last = now
	return true
}

// tenantKey names something of a tenant: a call, an idempotency key or a budget.
type tenantKey struct{ tenant, id string }
