package api

import (
	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// maxQueueListed is how many calls of a queue are listed.
const maxQueueListed = 1000

// listQueue lists the calls that wait for a device, which its device id names. A caller whose credentials name a user
// sees only calls of that user.
func (h *handler) listQueue(c *gin.Context, _ *params) error {
	who, ctx := caller(c), storeContext(c)
	target := registry.Target{DeviceID: c.Param("id"), Viewer: who.Viewer()}
	if h.Queue == nil || h.Devices == nil {
		return registry.ErrUnknownDevice
	}
	known, _, err := h.Devices.KnownDevices(ctx, registry.KnownQuery{Tenant: who.Tenant, Target: target})
	if err != nil {
		return err
	}
	if len(known) == 0 {
		return registry.ErrUnknownDevice
	}
	list := wire.QueuedCalls{Calls: []wire.CallRecord{}}
	for _, d := range known {
		waiting, err := h.Queue.Queued(ctx, who.Tenant, d.Session.DeviceKey(), maxQueueListed)
		if err != nil {
			return err
		}
		for i, r := range waiting {
			if who.Viewer() == "" || r.UserID == who.Viewer() {
				shown := summaryOf(r)
				shown.Place = i + 1
				list.Calls = append(list.Calls, shown)
			}
		}
	}
	return h.respond(c, list)
}
