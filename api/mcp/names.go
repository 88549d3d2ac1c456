package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/farhand/farhand/registry"
)

const (
	// separator stands between a tool's name and the session it runs on. No session's part has it, so a name is taken
	// apart in one way only.
	separator = "__"

	// maxName is how long a name may be in MCP.
	maxName = 128

	// hashedSession begins the part of a session whose id makes a name too long. What follows is no escape.
	hashedSession = ".h"
)

// qualify returns the name of a session's tool in a scope of several sessions. tool is its name in the session's own
// scope.
func qualify(tool, session string) string {
	part := escapeSession(session)
	if len(tool)+len(separator)+len(part) > maxName {
		part = hashSession(session)
	}
	return tool + separator + part
}

// unqualify takes apart what qualify has made. The session is what escapeSession or hashSession returned.
func unqualify(name string) (tool, session string, ok bool) {
	at := strings.LastIndex(name, separator)
	if at <= 0 || at+len(separator) == len(name) {
		return "", "", false
	}
	return name[:at], name[at+len(separator):], true
}

// escapeSession returns a session's id in the characters that names may have. Of two ids no two come out equal: a dot
// and two hexadecimal digits stand for every character that is no letter, digit, hyphen or single underscore.
func escapeSession(id string) string {
	plain := func(i int) bool {
		c := id[i]
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' && i > 0 && id[i-1] != '_'
	}
	var b strings.Builder
	for i := range len(id) {
		if plain(i) {
			b.WriteByte(id[i])
			continue
		}
		b.WriteByte('.')
		b.WriteString(hex.EncodeToString([]byte{id[i]}))
	}
	return b.String()
}

// unescapeSession returns the id that escapeSession was given.
func unescapeSession(part string) (id string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '.' {
			b.WriteByte(part[i])
			continue
		}
		if i+3 > len(part) {
			return "", false
		}
		c, err := strconv.ParseUint(part[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	id = b.String()
	return id, escapeSession(id) == part && registry.Key{Tenant: registry.DefaultTenant, Session: id}.Validate() == nil
}

// hashSession returns what stands for an id that is too long. Nobody can find another id for it.
func hashSession(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hashedSession + hex.EncodeToString(sum[:16])
}

// shownName returns what a tool is called in its session's own scope: its name, if MCP allows that. Else the allowed
// characters are left, and a part of the name's hash stands for the others.
func shownName(name string) string {
	if allowedName(name) {
		return name
	}
	return asciiName(name)
}

// allowedName reports whether MCP allows a name that the gateway allows: only letters beyond ASCII keep it from that.
func allowedName(name string) bool {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return true
}

// foreignName begins the name of a tool that has nothing of ASCII.
const foreignName = "tool"

func asciiName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if name[i] < 0x80 {
			b.WriteByte(name[i])
		}
	}
	plain := strings.Trim(b.String(), "_.-")
	if plain == "" {
		plain = foreignName
	}
	sum := sha256.Sum256([]byte(name))
	return plain + "_" + hex.EncodeToString(sum[:8])
}

// isHashed reports whether a name looks like one that asciiName has made.
func isHashed(name string) bool {
	const digits = 16
	at := len(name) - digits - 1
	if at < 1 || name[at] != '_' {
		return false
	}
	_, err := hex.DecodeString(name[at+1:])
	return err == nil
}
