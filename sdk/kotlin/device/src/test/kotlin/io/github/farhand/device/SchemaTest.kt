package io.github.farhand.device

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.serializer
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith

@Serializable
private enum class Facing {
    @SerialName("front")
    FRONT,

    @SerialName("back")
    BACK,
}

@Serializable
@JvmInline
private value class Percent(val value: Int)

@Serializable
private data class Snap(
    @Description("Which camera") val facing: Facing = Facing.BACK,
    @Bounds(1.0, 100.0) val quality: Percent,
    val zoom: Double?,
    val names: List<String> = emptyList(),
    val more: Map<String, JsonElement> = emptyMap(),
)

@Serializable
private data class Tree(val name: String, val children: List<Tree> = emptyList())

@Serializable
private data class Forest(val trees: List<Tree>)

@Serializable
private sealed interface Shape {
    @Serializable
    @SerialName("circle")
    data class Circle(val radius: Float) : Shape

    @Serializable
    @SerialName("square")
    data class Square(val side: UInt) : Shape
}

@Serializable
private data class Draw(val shape: Shape, val label: Char?)

class SchemaTest {
    private inline fun <reified T> check(schema: String) {
        assertEquals(Json.parseToJsonElement(schema), schemaOf(serializer<T>().descriptor))
    }

    @Test
    fun `properties with a default or null are optional`() = check<Snap>(
        """{"type":"object","properties":{
        "facing":{"type":"string","enum":["front","back"],"description":"Which camera"},
        "quality":{"type":"integer","minimum":1,"maximum":100},
        "zoom":{"type":["number","null"]},
        "names":{"type":"array","items":{"type":"string"}},
        "more":{"type":"object","additionalProperties":{}}},
        "required":["quality"],"additionalProperties":false}""",
    )

    @Test
    fun `a class that contains itself is a definition`() = check<Forest>(
        """{"type":"object","properties":{"trees":{"type":"array","items":{"${'$'}ref":"#/${'$'}defs/Tree"}}},
        "required":["trees"],"additionalProperties":false,"${'$'}defs":{"Tree":{"type":"object","properties":{
        "name":{"type":"string"},"children":{"type":"array","items":{"${'$'}ref":"#/${'$'}defs/Tree"}}},
        "required":["name"],"additionalProperties":false}}}""",
    )

    @Test
    fun `subclasses of a sealed class are choices`() = check<Draw>(
        """{"type":"object","properties":{"shape":{"anyOf":[
        {"type":"object","properties":{"type":{"const":"circle"},"radius":{"type":"number"}},
        "required":["type","radius"],"additionalProperties":false},
        {"type":"object","properties":{"type":{"const":"square"},"side":{"type":"integer"}},
        "required":["type","side"],"additionalProperties":false}]},
        "label":{"type":["string","null"],"minLength":1,"maxLength":1}},
        "required":["shape"],"additionalProperties":false}""",
    )

    @Test
    fun `arguments are a class`() {
        assertFailsWith<IllegalArgumentException> { schemaOf(serializer<String>().descriptor) }
        assertFailsWith<IllegalArgumentException> { schemaOf(serializer<List<String>>().descriptor) }
    }

    @Test
    fun `a tool has a name that the gateway takes`() {
        assertFailsWith<IllegalArgumentException> { jsonTool("two words", "Has a space.") { "" } }
        assertEquals("zählen_1", jsonTool("zählen_1", "Counts.") { "" }.name)
    }
}
