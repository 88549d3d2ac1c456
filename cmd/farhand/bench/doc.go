// Package bench measures pods that are running: it connects devices, calls their tools over HTTP, checks every
// answer, and prints rates and durations for every route and number of callers. `farhand bench` is Run.
//
// Generator, pods and Redis often share a machine, so the generator is lean: its devices are bare TCP connections,
// its callers write requests that were built once. Whatever is compared is measured by the same generator, in the
// same run, in turns (A B A B), and the medians are compared: what the machine does beside it then hits all sides.
//
// cmd/farhand-bench, for developers of Farhand, builds on it. It imports nothing of ours. Start reading at Run.
package bench
