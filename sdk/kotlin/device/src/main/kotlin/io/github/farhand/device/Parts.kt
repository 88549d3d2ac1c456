package io.github.farhand.device

import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlinx.serialization.serializer
import java.io.File
import java.io.InputStream
import java.util.Base64

/** An image, a sound or a file of a result. Make it with [image], [audio] or [file]. */
public class Part internal constructor(
    internal val type: String,
    /** Such as `image/png`: lower case, without parameters. */
    public val mimeType: String,
    /** Name of the file, for people. */
    public val name: String?,
    /** In bytes. */
    public val size: Long,
    internal val open: () -> InputStream,
    /** Where it was uploaded to; null: it was not. Set by [Call.upload]. */
    public val url: String? = null,
) {
    init {
        require(mimeType.contains('/') && mimeType == mimeType.lowercase() && ';' !in mimeType) {
            "the MIME type $mimeType is not one like image/png"
        }
    }

    internal fun uploadedTo(url: String): Part = Part(type, mimeType, name, size, open, url)
}

/** An image of a result. */
public fun image(data: ByteArray, mimeType: String, name: String? = null): Part = part("image", data, mimeType, name)

/** A sound of a result. */
public fun audio(data: ByteArray, mimeType: String, name: String? = null): Part = part("audio", data, mimeType, name)

/** A file of a result; also a video. */
public fun file(data: ByteArray, mimeType: String = "application/octet-stream", name: String? = null): Part =
    part("file", data, mimeType, name)

/** A file of a result, which is read when it is sent. It must not change until then. */
public fun file(data: File, mimeType: String = "application/octet-stream", name: String? = data.name): Part =
    Part("file", mimeType, name, data.length(), data::inputStream)

private fun part(type: String, data: ByteArray, mimeType: String, name: String?): Part =
    Part(type, mimeType, name, data.size.toLong(), data::inputStream)

/** A handler's result with parts: at most 16. Those that are too large for an answer are uploaded. */
public class Result(
    /** As a handler returns it without parts. */
    internal val output: Any?,
    internal val parts: List<Part>,
) {
    public constructor(output: Any?, vararg parts: Part) : this(output, parts.toList())
}

/** What the gateway takes within an answer, of all parts together. */
private const val INLINE_BYTES = 1L shl 20

/** Returns the `tool_result` of what a handler returned. Parts that do not fit into it are uploaded, one by one. */
internal suspend fun success(id: String, returned: Any?, limits: Limits, upload: suspend (Part) -> Part): String {
    val result = returned as? Result ?: if (returned is Part) Result("", returned) else Result(returned)
    var room = minOf(INLINE_BYTES, limits.outputBytes / 2) // base64 takes four bytes for three
    val parts = result.parts.map { given ->
        val part = if (given.url != null || given.size <= room) given else upload(given)
        if (part.url == null) room -= part.size
        part.toJson()
    }
    val output = if (result.output == null || result.output == Unit) JsonPrimitive("") else jsonOf(result.output)
    return frame("tool_result", "id" to id, "output" to output, "parts" to parts.ifEmpty { null }, "success" to true)
}

private fun Part.toJson(): JsonObject = buildJsonObject {
    put("type", type)
    put("mime_type", mimeType)
    name?.let { put("name", it) }
    put("size", size)
    if (url != null) {
        put("url", url)
    } else {
        put("data", Base64.getEncoder().encodeToString(open().use { it.readBytes() }))
    }
}

/**
 * Returns the JSON of a value: what JSON has, lists and maps of that, enums, and instances of `@Serializable` classes.
 */
internal fun jsonOf(value: Any?): JsonElement = when (value) {
    null -> JsonNull
    is JsonElement -> value
    is String -> JsonPrimitive(value)
    is Number -> JsonPrimitive(value)
    is Boolean -> JsonPrimitive(value)
    is Enum<*> -> JsonPrimitive(value.name)
    is Map<*, *> -> JsonObject(value.entries.associate { (key, member) -> key.toString() to jsonOf(member) })
    is Iterable<*> -> JsonArray(value.map(::jsonOf))
    is Array<*> -> JsonArray(value.map(::jsonOf))
    else -> try {
        Json.encodeToJsonElement(Json.serializersModule.serializer(value.javaClass), value)
    } catch (e: SerializationException) {
        throw IllegalArgumentException("the handler returned a ${value.javaClass.name}, which has no JSON", e)
    }
}
