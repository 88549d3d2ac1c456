// Package bench measures running pods: it connects devices, calls their tools over HTTP, checks every answer, and
// prints rates and durations for every route and number of callers. `farhand bench` is Run.
//
// Generator, pods and Redis often share a machine, so the generator is lean: its devices are bare TCP connections, and
// its callers write requests that were built once. Sides are compared with the same generator, in the same run, in
// alternation (A B A B), by their medians. So other load on the machine affects all sides.
//
// cmd/farhand-bench, for developers of Farhand, builds on it. It imports no other package of Farhand. Start reading at
// Run.
package bench
