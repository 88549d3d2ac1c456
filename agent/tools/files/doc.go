// Package files is the tools read, write and edit: the files of the workspace of one agent session.
//
// Everything goes through os.Root, opened on the workspace, in this process, also for sessions whose programs run in a
// sandbox: what a container mounts is that very folder. A path is looked at as text (path.go), then walked folder by
// folder without following a link (folder.go); what it leads to must be a regular file with one name and an owner of
// the workspace (regular.go). Files are replaced, never changed in place (replace.go).
package files
