//go:build !race

package routing_test

import "time"

// simBudget is how long a normal run simulates.
const simBudget = 15 * time.Second
