package io.github.farhand.device

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import java.io.File
import java.io.IOException
import kotlin.test.AfterTest
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertTrue

/** A device whose gateway cannot be reached. */
class DeviceTest {
    private val folder = File.createTempFile("farhand", null).also { it.delete() }

    @AfterTest
    fun clean() {
        folder.deleteRecursively()
    }

    @Test
    fun `a run that is cancelled while it begins is closed, and frees its journal`() = runBlocking {
        val file = File(folder, "device.jsonl")
        val device = Device("http://127.0.0.1:9") { journal = file }
        for (i in 0..200) {
            val run = launch(Dispatchers.Default) { device.run() }
            val until = System.nanoTime() + i * 10_000L
            while (System.nanoTime() < until) Thread.onSpinWait()
            run.cancelAndJoin()
            assertEquals(State.Closed, device.state.value)
            Journal.open(file).close()
        }
    }

    @Test
    fun `a store that fails in any way refuses the device`() = runBlocking {
        val store = object : BytesCredentialStore() {
            override fun read() = throw UnsupportedOperationException("no store")

            override fun write(bytes: ByteArray?) = Unit
        }
        val device = Device("http://127.0.0.1:9") { credentials = store }
        assertEquals("internal", assertFailsWith<FarhandException> { device.run() }.code)
        assertTrue(device.state.value is State.Refused)
    }

    @Test
    fun `a malformed credential is an IOException, which does not have it`() = runBlocking {
        folder.mkdirs()
        val file = File(folder, "credential").also { it.writeText("""{"credential":"fhd_secret""") }
        val failed = assertFailsWith<IOException> { FileCredentialStore(file).load() }
        assertFalse("fhd_secret" in failed.stackTraceToString())
        val device = Device("http://127.0.0.1:9") { credentials = FileCredentialStore(file) }
        assertEquals("store", assertFailsWith<FarhandException> { device.run() }.code)
    }
}
