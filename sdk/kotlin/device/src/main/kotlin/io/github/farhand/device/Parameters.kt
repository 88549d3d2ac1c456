package io.github.farhand.device

import kotlinx.serialization.json.JsonObject

/** Describes the arguments of a tool, one by one. */
public class Parameters internal constructor() {
    private val properties = LinkedHashMap<String, JsonObject>()
    private val required = mutableListOf<String>()

    /** A text. With [choices], one of them. */
    public fun string(name: String, description: String, vararg choices: String, optional: Boolean = false) {
        add(name, description, optional, "type" to "string", "enum" to choices.toList().ifEmpty { null })
    }

    public fun integer(
        name: String,
        description: String,
        minimum: Long? = null,
        maximum: Long? = null,
        optional: Boolean = false,
    ) {
        add(name, description, optional, "type" to "integer", "minimum" to minimum, "maximum" to maximum)
    }

    public fun number(
        name: String,
        description: String,
        minimum: Double? = null,
        maximum: Double? = null,
        optional: Boolean = false,
    ) {
        add(name, description, optional, "type" to "number", "minimum" to minimum, "maximum" to maximum)
    }

    public fun boolean(name: String, description: String, optional: Boolean = false) {
        add(name, description, optional, "type" to "boolean")
    }

    /** An argument with any JSON Schema. */
    public fun property(name: String, schema: JsonObject, optional: Boolean = false) {
        properties[name] = schema
        if (!optional) required += name
    }

    private fun add(name: String, description: String, optional: Boolean, vararg members: Pair<String, Any?>) {
        property(name, jsonOf(members(*members, "description" to description)) as JsonObject, optional)
    }

    internal fun toJson(): JsonObject = jsonOf(
        mapOf(
            "type" to "object",
            "properties" to properties,
            "required" to required,
            "additionalProperties" to false,
        ),
    ) as JsonObject
}
