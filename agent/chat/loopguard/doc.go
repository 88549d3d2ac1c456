// Package loopguard stops conversations that go round in circles: a model that makes the same call again and again and
// gets the same answer each time. docs/decisions/0007-loop-guard.md says what counts as the same.
//
// It is a hook, and imports agent and registry. Start reading at Guard in loopguard.go; history.go reads what a
// conversation has called before.
package loopguard
