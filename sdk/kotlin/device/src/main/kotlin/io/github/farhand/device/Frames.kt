package io.github.farhand.device

import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.doubleOrNull
import kotlin.time.Duration
import kotlin.time.Duration.Companion.days
import kotlin.time.Duration.Companion.milliseconds

/** The version of the device protocol that this SDK speaks (docs/protocol.md). */
public const val PROTOCOL_VERSION: Int = 1

/** What a gateway announces with `session_start`. The defaults are those of a gateway that announces nothing. */
internal data class Limits(
    val frameBytes: Long = 1 shl 20,
    val outputBytes: Long = 1 shl 20,
    val framesPerSecond: Double = 500.0,
    val frameBurst: Double = 1000.0,
) {
    companion object {
        /** Returns announced limits. What is missing or no positive number keeps its default. */
        fun of(announced: JsonElement?): Limits {
            val limits = announced as? JsonObject ?: return Limits()
            val default = Limits()
            fun positive(name: String, otherwise: Double): Double =
                limits[name].number(0.0).let { if (it > 0) it else otherwise }
            return Limits(
                positive("frame_bytes", default.frameBytes.toDouble()).toLong(),
                positive("output_bytes", default.outputBytes.toDouble()).toLong(),
                positive("frames_per_second", default.framesPerSecond),
                positive("frame_burst", default.frameBurst),
            )
        }
    }
}

/** Returns the frame of a message, null if it is none. */
internal fun parseFrame(message: String): JsonObject? = try {
    (Json.parseToJsonElement(message) as? JsonObject)?.takeIf { it["type"].text().isNotEmpty() }
} catch (_: SerializationException) {
    null
}

/** Returns a string; empty: it is missing or has another type. */
internal fun JsonElement?.text(): String = (this as? JsonPrimitive)?.takeIf { it.isString }?.content ?: ""

/** Returns a finite number, or the default. */
internal fun JsonElement?.number(otherwise: Double = 0.0): Double =
    (this as? JsonPrimitive)?.takeIf { !it.isString }?.doubleOrNull?.takeIf { it.isFinite() } ?: otherwise

/** Returns the items of an array; none: it is missing or has another type. */
internal fun JsonElement?.items(): List<JsonElement> = this as? JsonArray ?: emptyList()

/** Returns a time to wait in milliseconds, at most a day. */
internal fun JsonElement?.wait(otherwise: Double = 0.0): Duration =
    number(otherwise).milliseconds.coerceIn(Duration.ZERO, 1.days)

/** Returns a frame with members; those that are null are left out. */
internal fun frame(type: String, vararg members: Pair<String, Any?>): String = JsonObject(
    buildMap {
        put("type", JsonPrimitive(type))
        for ((name, value) in members(*members)) put(name, jsonOf(value))
    },
).toString()

/** Returns the members that are not null. */
internal fun members(vararg all: Pair<String, Any?>): Map<String, Any> = buildMap {
    for ((name, value) in all) if (value != null) put(name, value)
}

/** Returns a `tool_error`. */
internal fun failure(id: String, error: String): String =
    frame("tool_error", "id" to id, "error" to error, "success" to false)

/** Returns the beginning of a text that has at most [bytes] bytes of UTF-8, whole characters only. */
internal fun String.cut(bytes: Long): String {
    var left = bytes
    var end = 0
    while (end < length) {
        val point = codePointAt(end)
        left -= when {
            point < 0x80 -> 1
            point < 0x800 -> 2
            point < 0x10000 -> 3
            else -> 4
        }
        if (left < 0) break
        end += Character.charCount(point)
    }
    return substring(0, end)
}
