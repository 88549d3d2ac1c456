package io.github.farhand.device

import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlin.time.Duration

/** How a gateway can wake devices. */
public data class WakeOffer(
    /** The kinds of pushes that it can send, such as `fcm`. */
    val kinds: List<String>,
    /** Its public key for Web Push and UnifiedPush, in base64url. */
    val vapidPublicKey: String,
) {
    internal companion object {
        /** Returns the offer of the frame `connected`, null if the gateway wakes no devices. */
        fun of(field: JsonElement?): WakeOffer? = (field as? JsonObject)?.let { offer ->
            WakeOffer(offer["kinds"].items().map { it.text() }, offer["vapid_public_key"].text())
        }
    }
}

/** How a device is woken while it sleeps. docs/wake.md of the gateway describes the kinds and their fields. */
public data class Wake(
    /** `webhook`, `webpush`, `unifiedpush`, `fcm` or `apns`. */
    val kind: String,
    val url: String? = null,
    val endpoint: String? = null,
    val keys: WakeKeys? = null,
    val token: String? = null,
    val topic: String? = null,
    /** The least time between two pushes. Default: the gateway's, a minute. */
    val minInterval: Duration? = null,
    val quiet: Quiet? = null,
) {
    internal fun toMap(): Map<String, Any> = members(
        "kind" to kind,
        "url" to url,
        "endpoint" to endpoint,
        "keys" to keys?.let { mapOf("p256dh" to it.p256dh, "auth" to it.auth) },
        "token" to token,
        "topic" to topic,
        "min_interval_ms" to minInterval?.inWholeMilliseconds,
        "quiet" to quiet?.let { members("from" to it.from, "to" to it.to, "zone" to it.zone) },
    )
}

/** The keys of a push subscription, in base64url. */
public data class WakeKeys(val p256dh: String, val auth: String)

/** The part of each day without pushes, such as from 22:00 to 07:00 in Europe/Vienna. Without a zone: UTC. */
public data class Quiet(val from: String, val to: String, val zone: String? = null)
