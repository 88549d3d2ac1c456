package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var scriptFiles embed.FS

// script is one of the embedded files; each is headed by its KEYS, its ARGV and what it returns.
type script struct {
	source string
	sha    string
}

// The scripts, read once and never changed.
var (
	scriptClaim    = mustScript("claim")
	scriptRestore  = mustScript("restore")
	scriptUpdate   = mustScript("update")
	scriptPutTools = mustScript("put_tools")
	scriptRefresh  = mustScript("refresh")
	scriptRelease  = mustScript("release")
	scriptEntry    = mustScript("entry")
	scriptIndexAdd = mustScript("index_add")
	scriptZRemIf   = mustScript("zrem_if")
	scriptPage     = mustScript("page")
	scriptBeat     = mustScript("beat")
	scriptLeases   = mustScript("leases")
	scriptBury     = mustScript("bury")
	scriptPush     = mustScript("push")
)

func allScripts() []*script {
	return []*script{
		scriptClaim, scriptRestore, scriptUpdate, scriptPutTools, scriptRefresh, scriptRelease, scriptEntry,
		scriptIndexAdd, scriptZRemIf, scriptPage, scriptBeat, scriptLeases, scriptBury, scriptPush,
	}
}

// mustScript reads an embedded file; one that is missing is a mistake in this package.
func mustScript(name string) *script {
	source, err := scriptFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	sum := sha1.Sum(source)
	return &script{source: string(source), sha: hex.EncodeToString(sum[:])}
}

// loadScripts puts all scripts into the servers' caches. A server that restarts forgets them; batch.run then sends
// the source.
func loadScripts(ctx context.Context, c redis.UniversalClient) error {
	return eachMaster(ctx, c, func(ctx context.Context, server redis.Cmdable) error {
		for _, s := range allScripts() {
			if err := server.ScriptLoad(ctx, s.source).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}
