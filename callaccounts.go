package farhand

import (
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
)

// Values of Config.LimitsFail.
const (
	limitsClosed = "closed"
	limitsOpen   = "open"
)

// callLimits returns the limits that hold beside those of the policy.
func (c Config) callLimits() []policy.Limit {
	var limits []policy.Limit
	add := func(per policy.Per, calls int, setting string) {
		if calls > 0 {
			limits = append(limits, policy.Limit{
				Rule: EnvPrefix + setting, Per: per, Calls: calls, Window: time.Minute,
			})
		}
	}
	add(policy.PerIdentity, c.LimitIdentity, "LIMIT_IDENTITY")
	add(policy.PerDevice, c.LimitDevice, "LIMIT_DEVICE")
	add(policy.PerTenant, c.LimitTenant, "LIMIT_TENANT")
	return limits
}

// meters tells several meters of each call.
type meters []agent.Meter

// CallEnded implements agent.Meter.
func (m meters) CallEnded(end agent.CallEnd) {
	for _, one := range m {
		one.CallEnded(end)
	}
}
