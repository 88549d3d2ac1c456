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

// script is an embedded file, or several in a row; each is headed by its KEYS, its ARGV and what it returns.
type script struct {
	name   string // of the file, or the last of them
	source string
	sha    string
}

// The scripts, read once and never changed.
var (
	scriptClaim     = mustScript("claim")
	scriptFormers   = mustScript("formers")
	scriptRestore   = mustScript("restore")
	scriptUpdate    = mustScript("update")
	scriptSetTools  = mustScript("set_tools")
	scriptRefresh   = mustScript("refresh")
	scriptRelease   = mustScript("release")
	scriptEntry     = mustScript("entry")
	scriptIndexAdd  = mustScript("index_add")
	scriptLabelsAdd = mustScript("labels_add")
	scriptLabelsRem = mustScript("labels_rem")

	scriptDefinitionsAdd = mustScript("definitions_add")

	scriptZRemIf = mustScript("zrem_if")
	scriptPage   = mustScript("page")
	scriptBeat   = mustScript("beat")
	scriptLeases = mustScript("leases")
	scriptBury   = mustScript("bury")
	scriptPush   = mustScript("push")
	scriptFeed   = mustScript("feed_append")
	scriptSpend  = mustScript("spend")
	scriptSetIf  = mustScript("set_if")
	scriptDelIf  = mustScript("del_if")

	scriptCallCreate = mustScript("call_base", "call_create")
	scriptCallMove   = mustScript("call_base", "call_move")
	scriptCallRead   = mustScript("call_base", "call_read")
	scriptCallKeep   = mustScript("call_base", "call_keep")
	scriptCallLog    = mustScript("call_base", "call_log")

	scriptChatBegin    = mustScript("chat_base", "chat_begin")
	scriptChatRenew    = mustScript("chat_base", "chat_renew")
	scriptChatEnd      = mustScript("chat_base", "chat_end")
	scriptChatAppend   = mustScript("chat_base", "chat_append")
	scriptChatDraft    = mustScript("chat_base", "chat_draft")
	scriptChatTruncate = mustScript("chat_base", "chat_truncate")
	scriptChatTitle    = mustScript("chat_base", "chat_title")
	scriptChatTrail    = mustScript("chat_base", "chat_trail")
	scriptChatRead     = mustScript("chat_base", "chat_read")
	scriptChatOwner    = mustScript("chat_base", "chat_owner")
	scriptChatName     = mustScript("chat_base", "chat_name")
	scriptChatErase    = mustScript("chat_base", "chat_erase")
	scriptChatInfo     = mustScript("chat_base", "chat_info")

	scriptChatsTouch   = mustScript("chats_base", "chats_touch")
	scriptChatsForget  = mustScript("chats_base", "chats_forget")
	scriptChatsVersion = mustScript("chats_base", "chats_version")
	scriptChatsPrune   = mustScript("chats_base", "chats_prune")

	scriptContinuationKeep = mustScript("continuation_keep")
	scriptContinuationRead = mustScript("continuation_read")
)

func allScripts() []*script {
	return []*script{
		scriptClaim, scriptFormers, scriptRestore, scriptUpdate, scriptSetTools, scriptRefresh, scriptRelease, scriptEntry,
		scriptIndexAdd, scriptLabelsAdd, scriptLabelsRem, scriptDefinitionsAdd, scriptZRemIf, scriptPage, scriptBeat, scriptLeases, scriptBury, scriptPush,
		scriptCallLog, scriptFeed, scriptSpend, scriptSetIf, scriptDelIf, scriptCallCreate, scriptCallMove, scriptCallRead, scriptCallKeep,
		scriptChatBegin, scriptChatRenew, scriptChatEnd, scriptChatAppend, scriptChatDraft, scriptChatTruncate,
		scriptChatTitle, scriptChatTrail, scriptChatRead, scriptChatOwner, scriptChatName, scriptChatErase, scriptChatInfo,
		scriptChatsTouch, scriptChatsForget, scriptChatsVersion, scriptChatsPrune,
		scriptContinuationKeep, scriptContinuationRead,
	}
}

// mustScript reads embedded files, which together are one script; one that is missing is a mistake in this package.
func mustScript(names ...string) *script {
	var source []byte
	for _, name := range names {
		part, err := scriptFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		source = append(source, part...)
	}
	sum := sha1.Sum(source)
	return &script{name: names[len(names)-1], source: string(source), sha: hex.EncodeToString(sum[:])}
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
