package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"io/fs"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script. Each file begins with its KEYS, its ARGV and what it returns.
type Script struct {
	name   string // of the file, or of the last one
	source string
	sha    string
	named  any // sha, as an argument
}

// SHA returns the hash by which the server knows the script.
func (s *Script) SHA() string { return s.sha }

// Name returns the name of the script's file, or of the last one, without .lua.
func (s *Script) Name() string { return s.name }

// Scripts are the scripts of a package. They are read when the program starts and never change.
type Scripts struct {
	files fs.FS
	all   []*Script
}

// NewScripts returns the scripts of the embedded files lua/*.lua. Must reads them.
func NewScripts(files fs.FS) *Scripts { return &Scripts{files: files} }

// All returns the scripts that Must has read.
func (s *Scripts) All() []*Script { return s.all }

// Must reads embedded files, which together are one script. It panics if a file is missing.
func (s *Scripts) Must(names ...string) *Script {
	var source []byte
	for _, name := range names {
		part, err := fs.ReadFile(s.files, "lua/"+name+".lua")
		if err != nil {
			panic(err)
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source)
	sha := hex.EncodeToString(sum[:])
	script := &Script{name: names[len(names)-1], source: string(source), sha: sha, named: sha}
	s.all = append(s.all, script)
	return script
}

// load puts all scripts into the caches of the servers. A server that restarts forgets them; Pipeline.Exec then sends
// the source.
func (s *Scripts) load(ctx context.Context, c *Conn) error {
	return c.EachMaster(ctx, func(ctx context.Context, server redis.Cmdable) error {
		for _, script := range s.all {
			if err := server.ScriptLoad(ctx, script.source).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Escape makes a part of a key. It keeps letters, digits, '.', '_' and '-', and percent-encodes every other byte. So no
// text of a device or a caller can end a hash tag, reach another key, or look like a separator.
func Escape(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = isPlain(s[i])
	}
	if plain {
		return s
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}
