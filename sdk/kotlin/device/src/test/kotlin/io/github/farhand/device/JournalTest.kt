package io.github.farhand.device

import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.JsonPrimitive
import java.io.File
import java.io.IOException
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
