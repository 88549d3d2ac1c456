package redisstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// docs/architecture.md lists every key with its content and its lifetime.

// Keys that belong to the whole fleet.
const (
	podsKey = "fh:pods"
	pingKey = "fh:ping"

	queuesKey = "fh:queues" // tenants with queued calls

	// changesKey is the log of changes of credentials. It is the hash tag of lastChangeKey, so both are in one slot.
	changesKey    = "fh:changes"
	lastChangeKey = "fh:{fh:changes}:last"

	// emptiedKey is in the slot of podsKey. It exists while Redis may lack sessions that pods have not yet announced
	// again.
	emptiedKey = "fh:{fh:pods}:emptied"
)

// offerSeparator separates the parts of a member of the offers index. It sorts before every character of a name, so
// members sort by name first.
const offerSeparator = "\x00"

func sessionKey(k registry.Key) string { return string(appendSessionKey(nil, k)) }
func goneKey(k registry.Key) string    { return "fh:" + sessionTag(k) + ":gone" }

func formersKey(k registry.Key) string { return "fh:" + sessionTag(k) + ":formers" }

// sessionKeys are the keys the session scripts take, all in one slot.
func sessionKeys(k registry.Key) []string { return []string{sessionKey(k), goneKey(k)} }

// expectedKey holds the expected offer of a session's next connection. It is in the slot of the session.
func expectedKey(k registry.Key) string { return "fh:" + sessionTag(k) + ":expected" }

// chatKeys are the keys of the scripts on conversations, all in the slot of the session. They live longer than the
// session.
func chatKeys(k registry.Key) []string {
	return []string{messagesKey(k), "fh:" + sessionTag(k) + ":chatmeta", "fh:" + sessionTag(k) + ":draft", trailKey(k)}
}

// placeKey is the key of a place. The place of a conversation is in the conversation's slot.
func placeKey(k registry.PlaceKey) string {
	if key, ok := k.Conversation(); ok {
		return "fh:" + sessionTag(key) + ":place"
	}
	return tenantKey(k.Tenant, "place:"+redisconn.Escape(k.Identity))
}

// chatPlaceKeys are chatKeys and the key of the conversation's place.
func chatPlaceKeys(k registry.Key) []string {
	return append(chatKeys(k), placeKey(registry.PlaceKey{Tenant: k.Tenant, Session: k.Session}))
}

// chatsKeys are the keys of the scripts on the lists of a tenant's conversations, all in one slot.
func chatsKeys(tenant string) []string {
	index := chatsIndex(tenant)
	return []string{index, index + ":version", runningIndex(tenant)}
}

func chatsIndex(tenant string) string   { return "fh:{" + redisconn.Escape(tenant) + ":chats}" }
func runningIndex(tenant string) string { return chatsIndex(tenant) + ":running" }

func messagesKey(k registry.Key) string { return "fh:" + sessionTag(k) + ":chat" }
func trailKey(k registry.Key) string    { return "fh:" + sessionTag(k) + ":trail" }

// queueKeys are the keys of the scripts on a device's queue, all in one slot.
func queueKeys(tenant, device string) []string {
	key := "fh:{" + redisconn.Escape(tenant) + ":queue}"
	return []string{key, key + ":due", key + ":sums", deviceQueueKey(tenant, device)}
}

func deviceQueueKey(tenant, device string) string {
	return "fh:{" + redisconn.Escape(tenant) + ":queue}:device:" + redisconn.Escape(device)
}

// documentKey and indexKey name documents and indexes of a space, all in one slot. No tenant has an empty name.
func documentKey(s documents.Space, id string) string {
	return spaceTag(s) + ":doc:" + redisconn.Escape(id)
}
func indexKey(s documents.Space, index string) string {
	return spaceTag(s) + ":index:" + redisconn.Escape(index)
}

func spaceTag(s documents.Space) string {
	tag := "fh:{" + redisconn.Escape(s.Tenant) + ":" + redisconn.Escape(s.Kind)
	if s.Owner != "" {
		tag += "/" + redisconn.Escape(s.Owner)
	}
	return tag + "}"
}

// spaceKind returns the kind of the space of a key.
func spaceKind(key string) string {
	_, rest, _ := strings.Cut(key, ":")
	_, rest, _ = strings.Cut(rest, ":")
	return rest[:max(0, strings.IndexAny(rest, "/}"))]
}

// continuationKeys are the keys of the scripts on the continuations of an owner, both in one slot.
func continuationKeys(h registry.ContinuationOwner) []string {
	key := tenantKey(h.Tenant, "{kept:"+redisconn.Escape(h.Tenant)+"/"+redisconn.Escape(h.User)+"}")
	return []string{key, key + ":expiry"}
}

// revokedKey holds the revocations of one kind. Those of a tenant are in one slot, and are read together.
func revokedKey(tenant string, kind registry.ChangeKind) string {
	return "fh:{" + redisconn.Escape(tenant) + ":revoked}:" + string(kind)
}

func sessionTag(k registry.Key) string {
	return "{" + redisconn.Escape(k.Tenant) + "/" + redisconn.Escape(k.Session) + "}"
}

// A refresh builds these keys for each session or tool, so they can be appended to reused memory (texts).

func appendSessionKey(b []byte, k registry.Key) []byte {
	b = append(append(b, "fh:{"...), redisconn.Escape(k.Tenant)...)
	return append(append(append(b, '/'), redisconn.Escape(k.Session)...), '}')
}

func appendSpecKey(b []byte, tenant, hash string) []byte {
	b = append(append(b, "fh:"...), redisconn.Escape(tenant)...)
	return append(append(b, ":spec:"...), redisconn.Escape(hash)...)
}

func specKey(tenant, hash string) string { return string(appendSpecKey(nil, tenant, hash)) }

func sessionsIndex(tenant string) string   { return tenantKey(tenant, "sessions") }
func deviceIndex(tenant, id string) string { return tenantKey(tenant, "device:"+redisconn.Escape(id)) }
func userIndex(tenant, id string) string   { return tenantKey(tenant, "user:"+redisconn.Escape(id)) }
func labelIndex(tenant, key, value string) string {
	return labelsPrefix(tenant) + redisconn.Escape(key) + "=" + redisconn.Escape(value)
}

// labelsPrefix is the common prefix of a tenant's label indexes. They are all in one slot, so that a device with many
// labels costs one script.
func labelsPrefix(tenant string) string { return "fh:{" + redisconn.Escape(tenant) + ":labels}:" }

func offersIndex(tenant string) string { return tenantKey(tenant, "offers") }

// definitionsIndex records the definitions by which a tool is offered, and since when. The indexes of all tools of a
// tenant are in one slot, so that a device with many tools costs one script.
func definitionsIndex(tenant, tool string) string {
	return string(appendDefinitionsIndex(nil, tenant, tool))
}

func appendDefinitionsIndex(b []byte, tenant, tool string) []byte {
	b = append(append(b, "fh:{"...), redisconn.Escape(tenant)...)
	return append(append(b, ":definitions}:"...), redisconn.Escape(tool)...)
}

func versionKey(tenant string) string { return tenantKey(tenant, "version") }

func setKey(tenant, set string) string { return tenantKey(tenant, "set:"+redisconn.Escape(set)) }
func membersIndex(tenant, set string) string {
	return tenantKey(tenant, "members:"+redisconn.Escape(set))
}

// Mirrors of indexes hold the sessions that are expected to be in those indexes again.

func membersMirror(tenant, set string) string {
	return tenantKey(tenant, "away:members:"+redisconn.Escape(set))
}
func deviceMirror(tenant, id string) string {
	return tenantKey(tenant, "away:device:"+redisconn.Escape(id))
}
func userMirror(tenant, id string) string {
	return tenantKey(tenant, "away:user:"+redisconn.Escape(id))
}

func tenantKey(tenant, rest string) string { return "fh:" + redisconn.Escape(tenant) + ":" + rest }

// callKeys are the keys of the scripts on records of calls, both in one slot.
func callKeys(tenant, callID string) []string {
	return []string{callKey(tenant, callID), callEventsKey(tenant, callID)}
}

func callKey(tenant, callID string) string {
	return tenantKey(tenant, "{call:"+redisconn.Escape(callID)+"}")
}

func callEventsKey(tenant, callID string) string { return callKey(tenant, callID) + ":events" }

// idemKey names an idempotency key by its digest, because callers choose keys of any length.
func idemKey(tenant, key string) string {
	digest := sha256.Sum256([]byte(key))
	return tenantKey(tenant, "idem:"+hex.EncodeToString(digest[:]))
}

func budgetKey(tenant, name string) string {
	return tenantKey(tenant, "budget:"+redisconn.Escape(name))
}

func activityKey(tenant string) string { return tenantKey(tenant, "activity") }

// feedKeys are the keys of the script on a feed, all in the slot of the feed. The feed's name is the hash tag of the
// others.
func feedKeys(tenant string) []string {
	key := activityKey(tenant)
	return []string{key, "fh:{" + key + "}:bytes", feedIndex(tenant), feedIndex(tenant) + ":before"}
}

func feedIndex(tenant string) string { return "fh:{" + activityKey(tenant) + "}:calls" }

// windowKey names a sliding window by the digest of its name, because callers choose names of any length. The windows
// of a tenant are in one slot.
func windowKey(tenant string, w registry.Window) string {
	digest := sha256.Sum256([]byte(w.Name))
	return "fh:{" + redisconn.Escape(tenant) + ":limits}:" + hex.EncodeToString(digest[:16]) + ":" +
		strconv.FormatInt(w.Period.Milliseconds(), 10)
}

func usageKey(tenant, day string) string { return tenantKey(tenant, "usage:"+redisconn.Escape(day)) }

// spentKeys are the keys of the script on a tenant's sums, both in one slot.
func spentKeys(tenant string) []string {
	key := "fh:{" + redisconn.Escape(tenant) + ":spent}"
	return []string{key, key + ":identities"}
}

// auditKeys are the keys of the script on an audit log, both in one slot.
func auditKeys(tenant string) []string {
	key := "fh:{" + redisconn.Escape(tenant) + ":audit}"
	return []string{key, key + ":size"}
}

func podSessionsKey(pod string) string { return "fh:{pod:" + redisconn.Escape(pod) + "}:sessions" }

// podMember names a session in podSessionsKey. It leaves out the default tenant, because each byte is stored once per
// session of the fleet.
func podMember(k registry.Key) string {
	if k.Tenant == registry.DefaultTenant {
		return k.Session
	}
	return k.Tenant + "/" + k.Session
}

func parsePodMember(member string) registry.Key {
	tenant, session, ok := strings.Cut(member, "/")
	if !ok {
		return registry.Key{Tenant: registry.DefaultTenant, Session: member}
	}
	return registry.Key{Tenant: tenant, Session: session}
}

// offerMember is the member of offersIndex for a tool of this name and specification in a set.
func offerMember(name, hash, set string) string {
	return string(appendOfferMember(nil, name, hash, set))
}

func appendOfferMember(b []byte, name, hash, set string) []byte {
	b = append(append(append(b, name...), offerSeparator...), hash...)
	return append(append(b, offerSeparator...), set...)
}

func parseOfferMember(member string) (o offer, ok bool) {
	parts := strings.Split(member, offerSeparator)
	if len(parts) != 3 {
		return offer{}, false
	}
	return offer{name: parts[0], hash: parts[1], set: parts[2]}, true
}

// attributeIndexes are the indexes that a session is in because of its attributes.
func attributeIndexes(s registry.Session) []string { return appendAttributeIndexes(nil, s) }

func appendAttributeIndexes(keys []string, s registry.Session) []string {
	keys = append(keys, sessionsIndex(s.Tenant))
	if s.DeviceID != "" {
		keys = append(keys, deviceIndex(s.Tenant, s.DeviceID))
	}
	keys = append(keys, userIndex(s.Tenant, s.UserID)) // no user: the empty id, whose sessions all users see
	for k, v := range s.Labels {
		keys = append(keys, labelIndex(s.Tenant, k, v))
	}
	return keys
}
