package io.github.farhand.device

import kotlinx.coroutines.Job
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import java.io.File
import java.io.IOException
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions
import kotlin.test.AfterTest
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertTrue

class JournalTest {
    private val folder = File.createTempFile("farhand", null).also { it.delete() }
    private val file = File(folder, "sub/device.jsonl")

    @AfterTest
    fun clean() {
        folder.deleteRecursively()
    }

    @Test
    fun `it outlives its process, and a broken last line`() = runBlocking {
        val first = Journal.open(file)
        first.put("a", JsonPrimitive(1))
        first.put("b", JsonPrimitive(2))
        first.put("a", JsonPrimitive(3))
        first.put("b", null)
        first.close()
        file.appendText("""["c",""")
        val second = Journal.open(file)
        assertEquals(listOf("a" to JsonPrimitive(3)), second.entries(""))
        assertEquals("[\"a\",3]\n", file.readText())
        second.close()
    }

    @Test
    fun `one device uses a file at a time`() = runBlocking {
        val first = Journal.open(file)
        assertFailsWith<IOException> { Journal.open(file) }
        first.close()
        Journal.open(file).close()
    }

    @Test
    fun `a key is added once`() = runBlocking {
        val first = Journal.open(file)
        first.add("a", JsonPrimitive(1))
        assertFailsWith<IOException> { first.add("a", JsonPrimitive(2)) }
        first.close()
        val second = Journal.open(file)
        assertFailsWith<IOException> { second.add("a", JsonPrimitive(2)) }
        assertEquals(JsonPrimitive(1), second["a"])
        second.close()
    }

    @Test
    fun `only its user can read it, whatever was left of an earlier attempt`() = runBlocking {
        file.parentFile.mkdirs()
        val target = File(folder, "target").also { it.writeText("untouched") }
        Files.createSymbolicLink(File("$file.new").toPath(), target.toPath())
        Journal.open(file).close()
        assertEquals("untouched", target.readText())
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file.toPath())))
    }

    @Test
    fun `calls that are forgotten are not kept`() = runBlocking {
        val journal = Journal.open(file)
        for (i in 1..1030) launch { journal.put("call/$i", buildJsonObject { put("at", i) }) }
        coroutineContext[Job]!!.children.forEach { it.join() }
        val answers = Answers { throw it }
        answers.use(journal)
        assertEquals((7..1030).map { "call/$it" }.toSet(), journal.entries("call/").map { it.first }.toSet())
        assertFailsWith<IOException> { answers.begin("1030") }
        answers.begin("1")
        journal.close()
    }

    @Test
    fun `concurrent changes are all written, and outdated ones are not kept`() = runBlocking {
        val journal = Journal.open(file)
        val long = "x".repeat(1000)
        for (i in 1..2000) launch { journal.put("key ${i % 100}", JsonPrimitive("$i $long")) }
        coroutineContext[kotlinx.coroutines.Job]!!.children.forEach { it.join() }
        journal.close()
        assertTrue(file.length() < 1_300_000, "the file has ${file.length()} bytes")
        val again = Journal.open(file)
        assertEquals(100, again.entries("key ").size)
        again.close()
    }
}
