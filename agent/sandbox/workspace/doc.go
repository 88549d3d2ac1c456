// Package workspace keeps the folders of agent sessions: makes them when they are first needed, bounds what is in them,
// and removes those that nobody has used for a while.
//
// Start reading at Workspaces. Limited is what bounds a folder while programs run in it.
package workspace
