// Package bench measures a fleet. It has three uses:
//
//   - Matrix drives calls over HTTP against pods that are running, whoever started them: every route and number of
//     callers is one line of figures.
//   - Targets starts a Redis and pods of its own, measures every row of the target table beside the references it is
//     held against, and says which targets are met.
//   - Growth starts the same and shows how cost grows with pods, sessions, tools and payload.
//
// Generator, pods and Redis usually share a machine, so the generator is lean: its devices are bare TCP connections, its
// callers write requests that were built once. Whatever is compared is measured by the same generator, in the same
// run, in turns (A B A B), and the medians are compared: what the machine does beside it then hits all sides.
package bench
