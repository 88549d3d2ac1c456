package io.github.farhand.device

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.delay
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.JsonObject
import okhttp3.OkHttpClient
import java.time.Instant
import kotlin.time.Duration.Companion.seconds

/** What a device asks to be paired as. */
public class PairOptions {
    /** A stable id of the device; null: the gateway makes one. */
    public var deviceId: String? = null

    /** For the approver. */
    public var deviceName: String? = null

    /** For the approver. Default: the system's name. */
    public var platform: String = systemName()

    /** Names of tools that the device wants to offer. */
    public var tools: List<String> = emptyList()

    /** The HTTP client; null: one of its own. */
    public var client: OkHttpClient? = null
}

/**
 * Returns the credential of [store], or pairs the device and keeps the credential there.
 *
 * [show] shows a code to a person, who enters it where pairings are approved, before it expires. It is called once for
 * each code, and again when a code has expired. It throws a [FarhandException] if an approver rejects the device
 * (`rejected`) or the gateway takes no pairings, and a [java.io.IOException] if the store fails. Cancellation ends the
 * wait for an approver.
 */
public suspend fun pair(
    address: String,
    store: CredentialStore,
    options: PairOptions.() -> Unit = {},
    show: suspend (code: String, expires: Instant) -> Unit,
): Credential {
    store.load()?.let { return it }
    val chosen = PairOptions().apply(options)
    val gateway = Address(address)
    val key = store.makeKey()
    val http = Http(chosen.client)
    try {
        var deviceId = chosen.deviceId
        while (true) {
            val asked = http.post(gateway, "/pair", request(chosen, deviceId, key))
            deviceId = asked["device_id"].text() // a further request is for the same device
            show(asked["code"].text(), Instant.now().plusMillis((asked["expires_in"].number() * 1000).toLong()))
            val token = decision(http, gateway, asked) ?: continue
            return Credential(token, deviceId, key).also { store.save(it) }
        }
    } finally {
        http.close()
    }
}

private fun request(options: PairOptions, deviceId: String?, key: DeviceKey?): JsonObject {
    val members = mapOf(
        "device_id" to deviceId,
        "device_name" to options.deviceName,
        "platform" to options.platform,
        "tools" to options.tools,
        "public_key" to key?.let { base64(it.publicKey) },
    )
    return jsonOf(members.filter { (_, value) -> value != null }) as JsonObject
}

/** Waits for the approver. It returns the credential's token, null if the code expired. */
private suspend fun decision(http: Http, gateway: Address, asked: JsonObject): String? {
    val interval = asked["interval"].number(1.0).coerceIn(1.0, 60.0).seconds
    val secret = JsonObject(mapOf("secret" to jsonOf(asked["secret"].text())))
    while (true) {
        delay(interval)
        val answer = try {
            http.post(gateway, "/pair/status", secret)
        } catch (e: FarhandException) {
            if (e.status == 404) return null
            if (e.status in 400..499 && e.status != 429) throw e
            continue // the gateway cannot be reached; the request may still be approved
        }
        when (answer["status"].text()) {
            "rejected" -> throw FarhandException("rejected", "an approver rejected the device")
            "approved" -> return answer["credential"].text()
        }
    }
}

/** Returns what a paired device proves with that it has its key: nonce.signature. Empty: it has none. */
internal suspend fun sign(http: Http, gateway: Address, credential: Credential): String {
    val key = credential.key ?: return ""
    val nonce = http.post(gateway, "/pair/challenge", JsonObject(emptyMap()), credential.token)["nonce"].text()
    val message = "farhand-device-v1\n$nonce\n${credential.deviceId}".encodeToByteArray()
    return withContext(Dispatchers.IO) { "$nonce.${base64(key.sign(message))}" }
}

/** Returns the name of the operating system: `android`, `linux`, `darwin`, `windows`. */
internal fun systemName(): String {
    val name = System.getProperty("os.name").orEmpty()
    return when {
        System.getProperty("java.vm.vendor").orEmpty().contains("Android") -> "android"
        name.startsWith("Mac") -> "darwin"
        else -> name.substringBefore(' ').lowercase()
    }
}
