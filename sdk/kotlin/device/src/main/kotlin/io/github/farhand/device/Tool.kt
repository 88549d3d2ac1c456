package io.github.farhand.device

import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.serializer
import kotlin.time.Duration

/** Who may call a tool. The gateway's policy can override it. */
public enum class SecurityLevel(internal val word: String) {
    SAFE("safe"),

    /** Calls need approval. */
    USER_CONFIRM("user_confirm"),

    /** Only for admins, never for models. */
    ADMIN_ONLY("admin_only"),
}

/** What a tool says beside its name, its description and its arguments. */
public class ToolOptions {
    /** How long callers wait by default; null: as long as the gateway's default. */
    public var timeout: Duration? = null

    public var securityLevel: SecurityLevel = SecurityLevel.SAFE

    /** Hints about the effects of a call for people and models; null: not said. */
    public var readOnly: Boolean? = null
    public var destructive: Boolean? = null
    public var idempotent: Boolean? = null
    public var openWorld: Boolean? = null

    /** What calls do outside the gateway; null: unknown. */
    public var effects: Effects? = null

    /** Up to 16 short names by which callers filter tools. */
    public var tags: List<String> = emptyList()

    /** JSON Schema of the output. The gateway marks answers that break it. */
    public var outputSchema: JsonObject? = null

    /**
     * JSON Schema of the arguments, an object. Default: that of the arguments' class, or any object. [parameters] makes
     * a simple one.
     */
    public var parameters: JsonObject? = null

    /** Describes the arguments. */
    public fun parameters(build: Parameters.() -> Unit) {
        parameters = Parameters().apply(build).toJson()
    }
}

/** What a tool declares about its calls. What is null is unknown. */
public data class Effects(
    /** `read`, `write`, `external` (reaches systems of others) or `people` (reaches a person). */
    val effectClass: String? = null,
    /** The tool works only while the app is in the foreground: see [Device.setForeground]. */
    val needsForeground: Boolean = false,
    /** The platform's permission that the tool uses, such as `camera`. */
    val permission: String? = null,
    /** `free`, `metered` or `high`. */
    val cost: String? = null,
    /** How long a call usually takes. */
    val typical: Duration? = null,
) {
    internal fun toMap(): Map<String, Any> = members(
        "class" to effectClass,
        "needs_foreground" to true.takeIf { needsForeground },
        "permission" to permission,
        "cost" to cost,
        "typical_ms" to typical?.inWholeMilliseconds,
    )
}

/**
 * A tool with its handler. Make it with [tool] or [jsonTool].
 *
 * The handler runs in the handlers' context of [DeviceOptions]. It returns a string, which is the output itself, Unit
 * or null for an empty output, a [Part] or a [Result] with images, sounds and files, or what is sent as JSON: a
 * [kotlinx.serialization.json.JsonElement], numbers, booleans, lists and maps, or an instance of a `@Serializable`
 * class. What it throws is the error of the caller.
 */
public class Tool internal constructor(
    public val name: String,
    /** The definition as `register_tools` has it, in JSON. */
    internal val definition: String,
    /** Checks arguments, and returns the handler with them. */
    internal val bind: (JsonObject) -> (suspend (Call) -> Any?),
)

/**
 * Makes a tool whose arguments are a `@Serializable` class. Their JSON Schema is made from the class, with the texts of
 * [Description] and the bounds of [Bounds]; properties with a default are optional.
 *
 * [name] is a letter, then letters, digits, `_`, `.` or `-`, at most 64 characters. [description] says what the tool
 * does, for a model; the gateway keeps 1,024 characters. It throws an [IllegalArgumentException] if the tool is
 * malformed.
 */
public inline fun <reified A : Any> tool(
    name: String,
    description: String,
    noinline options: ToolOptions.() -> Unit = {},
    noinline handler: suspend Call.(A) -> Any?,
): Tool = tool(name, description, serializer<A>(), options, handler)

/** Makes a tool whose arguments are read by [arguments]. */
public fun <A : Any> tool(
    name: String,
    description: String,
    arguments: DeserializationStrategy<A>,
    options: ToolOptions.() -> Unit = {},
    handler: suspend Call.(A) -> Any?,
): Tool {
    val chosen = ToolOptions().apply(options)
    val schema = chosen.parameters ?: schemaOf(arguments.descriptor)
    return Tool(name, definition(name, description, schema, chosen)) { json ->
        val args = try {
            argumentsJson.decodeFromJsonElement(arguments, json)
        } catch (e: SerializationException) {
            throw IllegalArgumentException(e.text().substringBefore('\n'), e)
        }
        val bound: suspend (Call) -> Any? = { call -> handler(call, args) }
        bound
    }
}

/** Makes a tool whose arguments are JSON, as [ToolOptions.parameters] describes them. */
public fun jsonTool(
    name: String,
    description: String,
    options: ToolOptions.() -> Unit = {},
    handler: suspend Call.(JsonObject) -> Any?,
): Tool {
    val chosen = ToolOptions().apply(options)
    val schema = chosen.parameters ?: JsonObject(mapOf("type" to jsonOf("object")))
    return Tool(name, definition(name, description, schema, chosen)) { json ->
        val bound: suspend (Call) -> Any? = { call -> handler(call, json) }
        bound
    }
}

/** Reads arguments. Models may name more than there is, and leave out what can be null. */
private val argumentsJson = Json {
    ignoreUnknownKeys = true
    explicitNulls = false
}

/** A necessary condition for names; the gateway checks the rest (docs/protocol.md). */
private val names = Regex("""[\p{L}\p{Nd}_][\p{L}\p{M}\p{Nd}_.-]{0,63}""")

private fun definition(name: String, description: String, schema: JsonObject, options: ToolOptions): String {
    require(names.matches(name)) { "the tool name ${jsonOf(name)} is malformed" }
    val hints = members(
        "readOnlyHint" to options.readOnly,
        "destructiveHint" to options.destructive,
        "idempotentHint" to options.idempotent,
        "openWorldHint" to options.openWorld,
    )
    val definition = members(
        "name" to name,
        "description" to description,
        "parameters" to schema,
        "output_schema" to options.outputSchema,
        "timeout_ms" to options.timeout?.inWholeMilliseconds,
        "annotations" to hints.ifEmpty { null },
        "effects" to options.effects?.toMap(),
        "tags" to options.tags.ifEmpty { null },
        "security_level" to options.securityLevel.takeIf { it != SecurityLevel.SAFE }?.word,
    )
    return jsonOf(definition).toString()
}
