// Package metrics turns what the rooms of a pod count into metrics for Prometheus. The rooms know nothing of
// Prometheus: each counts in atomic counters that are read when somebody scrapes (Stats), or tells a small interface of
// its own (Meter) what took how long. This package reads the former, implements the latter, and knows all of them.
//
// Every label has a fixed set of values, which is part of the metric's description: what is not in the set becomes
// "other". So the number of series has a bound (Metric.Bound), whatever devices and callers send, and docs/operate.md
// states it.
//
// The package imports client_golang, api, ws, agent, redisstore and registry/routing. Start with set.go; a new metric
// is one entry in the file of its room.
package metrics
