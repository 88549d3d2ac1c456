@file:OptIn(ExperimentalSerializationApi::class)

package io.github.farhand.device

import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.SerialInfo
import kotlinx.serialization.descriptors.PolymorphicKind
import kotlinx.serialization.descriptors.PrimitiveKind
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.descriptors.SerialKind
import kotlinx.serialization.descriptors.StructureKind
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject

/** What an argument, or a class of arguments, means: for a model. */
@SerialInfo
@Target(AnnotationTarget.PROPERTY, AnnotationTarget.CLASS)
public annotation class Description(val text: String)

/** Between which numbers an argument is, both included. */
@SerialInfo
@Target(AnnotationTarget.PROPERTY)
public annotation class Bounds(val minimum: Double, val maximum: Double)

/** Returns the JSON Schema (2020-12) of a class of arguments. */
internal fun schemaOf(descriptor: SerialDescriptor): JsonObject {
    require(descriptor.kind == StructureKind.CLASS || descriptor.kind == StructureKind.OBJECT) {
        "${descriptor.serialName} is no class with properties, as arguments are"
    }
    return Schemas().root(descriptor)
}

private class Schemas {
    private val path = mutableListOf<String>() // serial names of the classes around
    private val recursive = mutableSetOf<String>()
    private val definitions = LinkedHashMap<String, JsonObject>()

    fun root(descriptor: SerialDescriptor): JsonObject {
        val properties = members(descriptor)
        if (descriptor.serialName in recursive) definitions[key(descriptor.serialName)] = JsonObject(properties)
        return JsonObject(properties + listOf("\$defs" to jsonOf(definitions)).filter { definitions.isNotEmpty() })
    }

    private fun schema(of: SerialDescriptor, annotations: List<Annotation> = emptyList()): JsonObject {
        val members = LinkedHashMap(
            if (of.isInline) schema(of.getElementDescriptor(0)) else plain(of),
        )
        if (of.isNullable) nullable(members)
        for (annotation in of.annotations + annotations) {
            when (annotation) {
                is Description -> members["description"] = jsonOf(annotation.text)
                is Bounds -> {
                    members["minimum"] = jsonOf(whole(annotation.minimum))
                    members["maximum"] = jsonOf(whole(annotation.maximum))
                }
            }
        }
        return JsonObject(members)
    }

    private fun plain(of: SerialDescriptor): Map<String, JsonElement> = when (of.kind) {
        PrimitiveKind.BOOLEAN -> type("boolean")
        PrimitiveKind.BYTE, PrimitiveKind.SHORT, PrimitiveKind.INT, PrimitiveKind.LONG -> type("integer")
        PrimitiveKind.FLOAT, PrimitiveKind.DOUBLE -> type("number")
        PrimitiveKind.CHAR -> type("string", "minLength" to 1, "maxLength" to 1)
        PrimitiveKind.STRING -> type("string")
        SerialKind.ENUM -> type("string", "enum" to List(of.elementsCount, of::getElementName))
        StructureKind.LIST -> type("array", "items" to schema(of.getElementDescriptor(0)))
        StructureKind.MAP -> type("object", "additionalProperties" to schema(of.getElementDescriptor(1)))
        StructureKind.CLASS, StructureKind.OBJECT -> named(of)
        PolymorphicKind.SEALED -> if (of.isJson()) emptyMap() else sealed(of)
        PolymorphicKind.OPEN, SerialKind.CONTEXTUAL -> emptyMap()
    }

    /** Returns the schema of a class, or a reference to it if the class contains itself. */
    private fun named(of: SerialDescriptor): Map<String, JsonElement> {
        val name = of.serialName.removeSuffix("?")
        if (name in path) {
            recursive += name
            return reference(name)
        }
        val members = members(of)
        if (name !in recursive) return members
        definitions[key(name)] = JsonObject(members)
        return reference(name)
    }

    private fun members(of: SerialDescriptor): Map<String, JsonElement> {
        path += of.serialName.removeSuffix("?")
        val properties = LinkedHashMap<String, JsonElement>()
        val required = mutableListOf<String>()
        for (i in 0 until of.elementsCount) {
            val member = of.getElementDescriptor(i)
            val name = of.getElementName(i)
            properties[name] = schema(member, of.getElementAnnotations(i))
            if (!of.isElementOptional(i) && !member.isNullable) required += name
        }
        path.removeAt(path.lastIndex)
        return type("object", "properties" to properties, "required" to required, "additionalProperties" to false)
    }

    /** Returns the schema of a sealed class: the property `type` names the subclass. */
    private fun sealed(of: SerialDescriptor): Map<String, JsonElement> {
        val subclasses = of.getElementDescriptor(1)
        val choices = List(subclasses.elementsCount) { i ->
            val members = members(subclasses.getElementDescriptor(i))
            val constant = jsonOf(mapOf("const" to subclasses.getElementName(i)))
            val properties = mapOf("type" to constant) + members.getValue("properties") as JsonObject
            val required = listOf("type") + members["required"].items().map { it.text() }
            members + mapOf("properties" to JsonObject(properties), "required" to jsonOf(required))
        }
        return mapOf("anyOf" to jsonOf(choices))
    }

    private fun nullable(members: MutableMap<String, JsonElement>) {
        val type = members["type"].text()
        when {
            members.isEmpty() -> return // takes anything
            type.isEmpty() || "enum" in members -> {
                val whole = JsonObject(members.toMap())
                members.clear()
                members["anyOf"] = jsonOf(listOf(whole, mapOf("type" to "null")))
            }
            else -> members["type"] = jsonOf(listOf(type, "null"))
        }
    }

    private fun SerialDescriptor.isJson() = serialName.startsWith("kotlinx.serialization.json.")

    private fun reference(name: String) = mapOf("\$ref" to jsonOf("#/\$defs/${key(name)}"))

    private fun key(name: String) = name.substringAfterLast('.')

    /** Returns a number without a fraction as an integer. */
    private fun whole(number: Double): Number = number.toLong().takeIf { it.toDouble() == number } ?: number

    private fun type(name: String, vararg members: Pair<String, Any>): Map<String, JsonElement> =
        mapOf("type" to jsonOf(name)) + members.associate { (key, value) -> key to jsonOf(value) }
}
