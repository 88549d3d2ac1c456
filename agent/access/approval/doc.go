// Package approval asks people about calls. A Keeper stores each question, waits for answers together with everybody
// who waits on its pod, takes decisions, and starts the asynchronous calls that were allowed, on whichever pod.
//
//   - keeper.go: the Keeper, its life; ask.go: questions; wait.go: waiting for answers.
//   - decide.go: decisions and withdrawals; grants.go: "allow always"; forget.go: how that ends
//     with whoever said it; due.go: asynchronous calls.
//   - shown.go: how a question is shown, so that nothing in it can hide.
package approval
