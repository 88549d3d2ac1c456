//go:build race

package routing_test

import "time"

// simBudget is how long a normal run simulates. The race detector makes a seed seven times as dear, so it sees the
// first hundreds only.
const simBudget = 5 * time.Second
