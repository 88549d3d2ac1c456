package registry

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Limits of a queued call's time to live. The default is also the default maximum.
const (
	MinQueueTTL     = time.Second
	DefaultQueueTTL = 24 * time.Hour
)

// CheckQueueTTL returns an error with CodeInvalidRequest unless a call may wait in a queue for this time. most is the
// longest.
func CheckQueueTTL(ttl, most time.Duration) error {
	if ttl >= MinQueueTTL && ttl <= most {
		return nil
	}
	return Errorf(CodeInvalidRequest,
		"The time that a call waits in a queue must be %d to %d ms; FARHAND_QUEUE_TTL sets the most.",
		MinQueueTTL.Milliseconds(), most.Milliseconds())
}

// QueueBound limits the calls that wait, and the bytes of their requests.
type QueueBound struct {
	Calls int64
	Bytes int64
}

// QueueBounds are the limits of the calls that wait for one device, of one identity, and of one tenant.
type QueueBounds struct {
	Device, Identity, Tenant QueueBound
}

// queueShare is the divisor of a device's bound that gives the share of a call that is Shared.
const queueShare = 2

// OfDevice returns the bound of the calls of the identity of c that wait for one device. An identity without a call
// there may add one of any size.
func (b QueueBounds) OfDevice(c *QueuedCall) QueueBound {
	if !c.Shared {
		return b.Device
	}
	return QueueBound{Calls: b.Device.Calls / queueShare, Bytes: b.Device.Bytes / queueShare}
}

// QueuedCall is a call in the queue of its device. It stays in the queue until it has ended, so the first one may be
// running.
type QueuedCall struct {
	Tenant   string
	CallID   string
	Device   string // a Session.DeviceKey
	Identity string // who is charged; empty: only the bounds of device and tenant apply
	Shared   bool   // with Enqueue: the device has other users than this identity, which gets half of its queue
	Request  []byte // everything that is needed to run the call; QueueHead and Enqueue only
	Since    time.Time
	Expires  time.Time // by the store's clock, in ms
}

// QueueStats are the calls that wait in one tenant.
type QueueStats struct {
	Calls  int64
	Bytes  int64
	Oldest time.Duration // the age of the call that expires next
}

// QueueStore keeps the queues of calls that wait for their devices. The record of each call is in a CallStore: the
// record alone decides whether a call may begin.
type QueueStore interface {
	// Enqueue adds a call to the end of its device's queue, for the time life, and returns its position, from 1 on,
	// and when it expires. A call that is in the queue keeps its position. Enqueue fails with CodeBusy if a bound is
	// reached.
	Enqueue(
		ctx context.Context, c QueuedCall, life time.Duration, b QueueBounds,
	) (position int, expires time.Time, err error)

	// QueueHead returns the first call of a device's queue. ok is false if the queue is empty.
	QueueHead(ctx context.Context, tenant, device string) (c QueuedCall, ok bool, err error)

	// QueuePosition returns the position of a call in its device's queue; zero: it is not there.
	QueuePosition(ctx context.Context, tenant, device, callID string) (int, error)

	// QueueOf returns the ids of at most limit calls of a device's queue, in order.
	QueueOf(ctx context.Context, tenant, device string, limit int) ([]string, error)

	// Waiting reports for each device whether its queue has a call.
	Waiting(ctx context.Context, tenant string, devices ...string) ([]bool, error)

	// Dequeue removes a call from its device's queue. It reports whether the call was there.
	Dequeue(ctx context.Context, tenant, device, callID string) (bool, error)

	// DueQueued returns calls that have expired, at most limit of a tenant, without their requests. It may need several
	// calls to reach every tenant. A call is returned again after at least again.
	DueQueued(ctx context.Context, limit int, again time.Duration) ([]QueuedCall, error)

	// ScanQueued returns a page of the queued calls of all tenants, without their requests: at least the last call of
	// each device. limit is about how many. The empty cursor begins; an empty next ends. A page may have no calls.
	// Calls that are added or removed meanwhile may be missed, or returned twice.
	ScanQueued(ctx context.Context, cursor string, limit int) (calls []QueuedCall, next string, err error)

	// QueueStats returns what waits, by tenant.
	QueueStats(ctx context.Context) (map[string]QueueStats, error)

	// EraseQueued removes the calls of an identity from all queues of a tenant, and returns their ids. It may be slow.
	EraseQueued(ctx context.Context, tenant, identity string) ([]string, error)
}

// QueueFull is the error if a bound is reached: of the device, of an identity's share of it, of the identity, or of the
// tenant. It names the bound as its rule.
func QueueFull(bound string) *Error {
	names := map[string]string{
		"device": "this device", "share": "this user, at this device,", "identity": "this caller",
		"tenant": "this tenant",
	}
	e := Errorf(CodeBusy, "The call was not queued: %s has reached its limit of waiting calls, or of their bytes. "+
		"Retry when some have run.", names[bound])
	e.Rule = bound
	return e.With(DispatchedNo).RetryIn(time.Minute)
}

// QueuedAgain is the error of the run of a call that returns to its queue. The call has not reached its device.
type QueuedAgain struct{ Until time.Time } // when it expires, by the store's clock

// Error implements error.
func (h *QueuedAgain) Error() string { return "registry: the call waits for its device again" }

// DeviceKey identifies the session's device in its tenant, for the memory of sleeping devices and for queues. A device
// that its credential does not name can choose any device id, so its user is part of the key. It is empty for a session
// without a device id.
func (s *Session) DeviceKey() string {
	switch {
	case s.DeviceID == "":
		return ""
	case s.Bound:
		return "b" + s.DeviceID
	default:
		return "u" + strconv.Itoa(len(s.UserID)) + ":" + s.UserID + s.DeviceID
	}
}

// TargetOfKey returns a target for the sessions with a Session.DeviceKey. Bound sessions of the same user with the same
// device id also match it if the key is not of a bound session. Without a device id it is the zero Target.
func TargetOfKey(key string) Target {
	if id, bound := strings.CutPrefix(key, "b"); bound {
		return Target{DeviceID: id, Bound: true}
	}
	length, rest, _ := strings.Cut(strings.TrimPrefix(key, "u"), ":")
	user, err := strconv.Atoi(length)
	switch {
	case err != nil || user < 0 || user >= len(rest):
		return Target{}
	case user == 0:
		return Target{DeviceID: rest, Viewer: NoUser}
	}
	return Target{DeviceID: rest[user:], UserID: rest[:user]}
}

// KnownDevice is a device that the gateway remembers. It may sleep: be without a connection.
type KnownDevice struct {
	Session  Session    // the last one: only the key and what the device says about itself
	Tools    []ToolSpec // ordered by name
	LastSeen time.Time
	After    int // KnownQuery.Skip of the devices after it
}

// DeviceMemory is a device to remember for the time Life.
type DeviceMemory struct {
	KnownDevice
	Life     time.Duration
	Identity string // that connected it, as in share.Owner; empty: not known
}

// KnownQuery selects known devices. Its target must match the last session. Empty fields do not restrict. A
// viewer's own devices are found however many others match.
type KnownQuery struct {
	Tenant string
	Target
	Skip  int // leave out so many of the first: by the end of their memory; of a viewer, the viewer's own come first
	Limit int // at most this many; zero means 100
}

// Limits of the known devices. Of the sets of tools of a tenant, a device that its credential names has at most a
// sixteenth, the other devices of a user have an eighth, and devices without a user a half.
const (
	MaxKnownDevices = 200_000  // of a tenant; while it has half of them, only those that a credential names are added
	MaxKnownOfUser  = 1_000    // of a user
	MaxKnownOfKey   = 50_000   // of an identity without a user, whose devices choose their ids
	MaxKnownTools   = 64 << 20 // bytes of the different sets of tools of a tenant's known devices
	MaxKnownSets    = 10_000   // of a tenant
)

// ErrUnknownDevice is returned for a device that the gateway does not remember.
var ErrUnknownDevice = Errorf(CodeSessionNotFound, "No device matches the target.")

// KnownDevices finds remembered devices.
type KnownDevices interface {
	// KnownDevices returns a page of known devices, and how many to skip for the next; zero: this is the last page. A
	// page may have fewer devices than the limit, even none.
	KnownDevices(ctx context.Context, q KnownQuery) (found []KnownDevice, next int, err error)
}

// SleepingStore remembers devices.
type SleepingStore interface {
	KnownDevices

	// RememberDevices stores devices. Beyond the limits, a device, or only its tools, is not remembered; that is not an
	// error.
	RememberDevices(ctx context.Context, devices []DeviceMemory) error

	// ForgetDevices forgets all devices with one of the ids, and all of the user. Empty: none.
	ForgetDevices(ctx context.Context, tenant, user string, deviceIDs ...string) error

	// ForgetDevice forgets the devices with these Session.DeviceKeys. Others may have the same device ids.
	ForgetDevice(ctx context.Context, tenant string, keys ...string) error
}

// firstPages bounds the pages that FirstKnown reads. Other users may have chosen the id that it looks for.
const firstPages = 16

// FirstKnown returns the first known device that matches a query, and whether there is one. Pages before it may be
// empty.
func FirstKnown(ctx context.Context, store KnownDevices, q KnownQuery) (KnownDevice, bool, error) {
	q.Limit = 1
	for range firstPages {
		page, next, err := store.KnownDevices(ctx, q)
		switch {
		case err != nil || len(page) == 0 && next == 0:
			return KnownDevice{}, false, err
		case len(page) > 0:
			return page[0], true, nil
		}
		q.Skip = next
	}
	return KnownDevice{}, false, nil
}
