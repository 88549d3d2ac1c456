// Package tools is the tools the gateway itself has: time and sessions. None is on unless it is enabled by name.
//
// It imports agent and registry. Start reading at Registrations in tools.go; a new tool is a file like time.go.
package tools
