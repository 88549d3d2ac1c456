package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// separator stands between the name of a server and that of its tool.
const separator = "__"

// serverName is what a server may be called: no two such names, each with the separator, begin one another.
var serverName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`)

const (
	maxName = 64 // characters of the name of a tool, for models, too
	hashed  = 8  // digits of the hash at the end of names that had to be changed
)

// Prefix is what the names of the tools of a server begin with. No device may register such a name, nor the server's.
func Prefix(server string) string { return server + separator }

// plainName returns a name with an underscore for each character that names of tools here do not have.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
}

// toolName returns what the tool of a server is called here: its own name behind that of the server. A name that models
// could not use is made one, and ends with a hash of what it was, so that no two tools have the same.
func toolName(server, tool string) string {
	plain := plainName(tool)
	name := Prefix(server) + plain
	if plain == tool && tool != "" && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(tool))
	end := "_" + hex.EncodeToString(sum[:])[:hashed]
	return name[:min(len(name), maxName-len(end))] + end
}
