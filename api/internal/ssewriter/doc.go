// Package ssewriter writes server-sent events, for the API and for the endpoints of /v1. Stream writes the events of
// one answer. ServeTurn writes those of a turn while it runs, and chooses when the answer begins.
//
// It imports nothing of this module. Start with stream.go, then turn.go.
package ssewriter
