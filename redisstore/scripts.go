package redisstore

import (
	"embed"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

//go:embed lua/*.lua
var scriptFiles embed.FS

// scripts are those of the store; Dial loads them all.
var scripts = redisconn.NewScripts(scriptFiles)

// The scripts, read once and never changed. Each file is headed by its KEYS, its ARGV and what it returns.
var (
	scriptClaim      = scripts.Must("expect_base", "claim")
	scriptRestore    = scripts.Must("restore")
	scriptUpdate     = scripts.Must("session_base", "update")
	scriptSetTools   = scripts.Must("session_base", "set_tools")
	scriptRefresh    = scripts.Must("refresh")
	scriptRelease    = scripts.Must("expect_base", "release")
	scriptEntry      = scripts.Must("entry")
	scriptLabelsAdd  = scripts.Must("labels_add")
	scriptIndexLeave = scripts.Must("mirror_base", "index_leave")
	scriptMirror     = scripts.Must("mirror_base", "mirror")

	scriptDefinitionsAdd = scripts.Must("definitions_add")
	scriptOffersMissing  = scripts.Must("offers_missing")

	scriptZRemIf      = scripts.Must("zrem_if")
	scriptPage        = scripts.Must("page")
	scriptHeartbeat   = scripts.Must("heartbeat")
	scriptLeases      = scripts.Must("leases")
	scriptLeaseRemove = scripts.Must("lease_remove")
	scriptFeed        = scripts.Must("feed_append")
	scriptSpend       = scripts.Must("spend")
	scriptSetIf       = scripts.Must("set_if")
	scriptDelIf       = scripts.Must("del_if")

	scriptBlobReserve = scripts.Must("blob_reserve")
	scriptBlobMove    = scripts.Must("blob_move")
	scriptBlobDrop    = scripts.Must("blob_drop")

	scriptPlaceClaim   = scripts.Must("place_claim")
	scriptPlaceRefresh = scripts.Must("place_refresh")
	scriptPlaceRelease = scripts.Must("place_release")

	scriptCallCreate = scripts.Must("call_base", "call_create")
	scriptCallBegin  = scripts.Must("call_base", "call_begin")
	scriptCallMove   = scripts.Must("call_base", "call_move")
	scriptCallRead   = scripts.Must("call_base", "call_read")
	scriptCallKeep   = scripts.Must("call_base", "call_keep")
	scriptCallLog    = scripts.Must("call_base", "call_log")

	scriptChatBegin    = scripts.Must("chat_base", "chat_begin")
	scriptChatRenew    = scripts.Must("chat_base", "chat_renew")
	scriptChatEnd      = scripts.Must("chat_base", "chat_end")
	scriptChatAppend   = scripts.Must("chat_base", "chat_append")
	scriptChatDraft    = scripts.Must("chat_base", "chat_draft")
	scriptChatTruncate = scripts.Must("chat_base", "chat_truncate")
	scriptChatTitle    = scripts.Must("chat_base", "chat_title")
	scriptChatTrail    = scripts.Must("chat_base", "chat_trail")
	scriptChatRead     = scripts.Must("chat_base", "chat_read")
	scriptChatOwner    = scripts.Must("chat_base", "chat_owner")
	scriptChatName     = scripts.Must("chat_base", "chat_name")
	scriptChatErase    = scripts.Must("chat_base", "chat_erase")
	scriptChatInfo     = scripts.Must("chat_base", "chat_info")

	scriptChatsTouch   = scripts.Must("chats_base", "chats_touch")
	scriptChatsForget  = scripts.Must("chats_base", "chats_forget")
	scriptChatsVersion = scripts.Must("chats_base", "chats_version")
	scriptChatsPrune   = scripts.Must("chats_base", "chats_prune")

	scriptAudit = scripts.Must("audit_append")
	scriptTake  = scripts.Must("take")
	scriptUsage = scripts.Must("usage_add")

	scriptContinuationKeep = scripts.Must("continuation_keep")
	scriptContinuationRead = scripts.Must("continuation_read")

	scriptPairingCreate = scripts.Must("pairing_create")
	scriptPairingTry    = scripts.Must("pairing_try")
	scriptPairingDecide = scripts.Must("pairing_decide")
	scriptPairingTake   = scripts.Must("pairing_take")
	scriptNoncePut      = scripts.Must("nonce_put")
	scriptNonceTake     = scripts.Must("nonce_take")

	scriptCredentialCreate  = scripts.Must("credential_create")
	scriptCredentialUpdate  = scripts.Must("credential_update")
	scriptCredentialTouch   = scripts.Must("credential_touch")
	scriptCredentialsAdd    = scripts.Must("credentials_add")
	scriptCredentialsRemove = scripts.Must("credentials_remove")
	scriptChangeAppend      = scripts.Must("change_append")
	scriptRevocationMark    = scripts.Must("revocation_mark")

	scriptApprovalCreate  = scripts.Must("approval_base", "approval_create")
	scriptApprovalDecide  = scripts.Must("approval_base", "approval_decide")
	scriptApprovalRead    = scripts.Must("approval_base", "approval_read")
	scriptApprovalVerdict = scripts.Must("approval_base", "approval_verdict")
	scriptApprovalWrong   = scripts.Must("approval_base", "approval_wrong")
	scriptApprovalDue     = scripts.Must("approval_due")
	scriptApprovalTenant  = scripts.Must("approval_tenant")

	scriptGrantPut    = scripts.Must("grant_base", "grant_put")
	scriptGrantFind   = scripts.Must("grant_base", "grant_find")
	scriptGrantList   = scripts.Must("grant_base", "grant_list")
	scriptGrantRevoke = scripts.Must("grant_base", "grant_revoke")
)
