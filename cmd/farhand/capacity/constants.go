// Package capacity computes what a fleet needs for a number of devices and calls, from costs that farhand-bench has
// measured. Start at Demand.Plan.
package capacity

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
)

// Constants are costs as one machine has them. Times are in microseconds of one core; Redis' are of its one thread.
// farhand-bench --write-constants measures them.
type Constants struct {
	Machine string `json:"machine"` // processor and number of cores
	Redis   string `json:"redis"`   // its version
	Commit  string `json:"commit"`
	Date    string `json:"date"`

	CallPod      float64 `json:"call_pod_us"`          // a call across pods, with a payload of 100 bytes: of both pods
	CallPodKB    float64 `json:"call_pod_us_per_kb"`   // each further 1,000 bytes each way
	CallRedis    float64 `json:"call_redis_us"`        // the same, of Redis
	CallRedisKB  float64 `json:"call_redis_us_per_kb"` //
	ConnectPod   float64 `json:"connect_pod_us"`       // a device comes back with five known tools
	ConnectRedis float64 `json:"connect_redis_us"`
	RefreshPod   float64 `json:"refresh_pod_us"` // a session is refreshed, and its device pinged
	RefreshRedis float64 `json:"refresh_redis_us"`

	SessionPod   float64 `json:"session_pod_bytes"` // an idle session with five tools, resident
	SessionRedis float64 `json:"session_redis_bytes"`
}

//go:embed constants.json
var measured []byte

// Measured returns the constants that the program was built with.
func Measured() (c Constants, err error) {
	if err := json.Unmarshal(measured, &c); err != nil {
		return c, fmt.Errorf("constants.json: %w", err)
	}
	return c, c.Check()
}

// Check returns an error if a cost is not known.
func (c Constants) Check() error {
	for _, cost := range []float64{
		c.CallPod, c.CallRedis, c.ConnectPod, c.ConnectRedis, c.RefreshPod, c.RefreshRedis, c.SessionPod,
		c.SessionRedis,
	} {
		if !(cost > 0) {
			return errors.New("a cost was not measured: run farhand-bench --write-constants again")
		}
	}
	if !(c.CallPodKB >= 0) || !(c.CallRedisKB >= 0) {
		return errors.New("a larger payload cannot cost less: run farhand-bench --write-constants on a quieter machine")
	}
	return nil
}
