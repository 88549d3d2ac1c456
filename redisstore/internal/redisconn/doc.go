// Package redisconn is what the store and the bus share: one connection to the servers of a fleet. It reads the URL,
// dials, checks the servers, loads scripts, and sends commands in pipelines. It knows neither sessions nor messages.
//
// It imports registry, for the errors that leave the package, and nothing else of ours. Start at Dial in conn.go, then
// read Pipeline in pipeline.go: every command of the store and of the bus goes through one.
package redisconn
