// Package metrics turns what the packages of a pod count into metrics for Prometheus. Those packages know nothing of
// Prometheus. They count in atomic counters, which their Stats methods return and this package reads at each scrape.
// What takes time they report to a small interface of their own, called Meter or Activity, which this package
// implements.
//
// Every label has a fixed set of values, which is part of the metric's description. A value that is not in the set
// becomes "other". So the number of series has a bound (Metric.Bound), whatever devices and callers send, and
// docs/operate.md states it.
//
// The package imports client_golang, api, ws, agent, redisstore and registry/routing. Start with set.go.
//
// A new metric is one entry in the file of the package that counts it: calls.go for agent, http.go for api, turns.go
// for agent/chat, redis.go for redisstore and its bus, pod.go for registry/routing and ws. What api, agent/access/auth and
// agent/chat refuse is in pod.go too.
//
// A package that has no metrics yet needs a method Stats, a field of Pod (pod.go), a line in Set.Watch (set.go) that
// reads the field, and a line in monitoring.go of the root package that sets it.
package metrics
