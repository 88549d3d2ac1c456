package io.github.farhand.device

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonPrimitive
import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.nio.channels.FileChannel
import java.nio.channels.OverlappingFileLockException
import java.nio.file.Files
import java.nio.file.StandardCopyOption
import java.nio.file.StandardOpenOption
import java.nio.file.attribute.PosixFilePermissions

/**
 * A file of a device's session and calls, which only its user can read, for one process at a time. Each change is a
 * line at its end: a list of a key and its value, without a value if there is none. The files of the Go and TypeScript
 * SDKs are the same. It is safe for concurrent use.
 */
internal class Journal private constructor(private val file: File, private val lock: Lock) {
    private val values = LinkedHashMap<String, JsonElement>() // guarded by itself, as are lines and added
    private var lines = StringBuilder() // that are not written
    private var added = 0L

    private val writing = Mutex() // guards what follows
    private var written = 0L // of added
    private var channel: FileChannel? = null
    private var size = 0L // bytes written since the file was made
    private var most = 0L // of size, until the file is made anew; negative: its end may be broken
    private var closed = false

    /** Returns the value of a key. */
    operator fun get(key: String): JsonElement? = synchronized(values) { values[key] }

    /** Returns the entries whose keys begin with [prefix], oldest first. */
    fun entries(prefix: String): List<Pair<String, JsonElement>> =
        synchronized(values) { values.filterKeys { it.startsWith(prefix) }.toList() }

    /** Keeps a value; null removes it. It is on the disk when [put] returns. Concurrent calls share a write. */
    suspend fun put(key: String, value: JsonElement?) = flush(synchronized(values) { set(key, value) })

    /** Keeps the value of a new key. It throws an [IOException] if the key has a value. */
    suspend fun add(key: String, value: JsonElement) = flush(
        synchronized(values) {
            if (key in values) throw IOException("$key was written before")
            set(key, value)
        },
    )

    /** Returns the turn of the change, for [flush]. */
    private fun set(key: String, value: JsonElement?): Long {
        if (value == null) values.remove(key) else values[key] = value
        lines.append(line(key, value))
        return ++added
    }

    private suspend fun flush(turn: Long) {
        writing.withLock {
            if (closed) throw IOException("$file is closed")
            if (written < turn) withContext(Dispatchers.IO) { write() }
        }
    }

    /** Closes the file, and lets another process use it. */
    suspend fun close() {
        writing.withLock {
            closed = true
            withContext(Dispatchers.IO) {
                try {
                    channel?.close()
                } finally {
                    channel = null
                    lock.release()
                }
            }
        }
    }

    private fun write() {
        val last: Long
        val text = synchronized(values) {
            last = added
            lines.toString().also { lines = StringBuilder() }
        }.encodeToByteArray()
        size += text.size
        val open = channel
        if (open == null || size > most) {
            rewrite()
        } else {
            try {
                open.writeAll(text)
                open.force(false)
            } catch (e: IOException) {
                most = -1 // the next write makes the file anew
                throw e
            }
        }
        written = last
    }

    private fun read() {
        if (!file.exists()) return
        file.forEachLine { text ->
            val entry = try {
                Json.parseToJsonElement(text) as? JsonArray
            } catch (_: SerializationException) {
                null // the last line, and a crash broke it
            }
            val key = entry?.firstOrNull().text()
            if (key.isNotEmpty()) {
                values.remove(key)
                entry?.getOrNull(1)?.let { values[key] = it }
            }
        }
    }

    /** Replaces the file by one without outdated lines. */
    private fun rewrite() {
        val all = synchronized(values) {
            values.entries.joinToString("") { (key, value) -> line(key, value) }
        }.encodeToByteArray()
        val next = createPrivate(File("$file.new"))
        try {
            next.writeAll(all)
            next.force(true)
            replace(File("$file.new"), file)
        } catch (e: IOException) {
            next.close()
            throw e
        }
        channel?.close()
        channel = next
        size = 0
        most = all.size + SPARE_BYTES
    }

    internal companion object {
        /** Of outdated lines, after which the file is made anew. */
        private const val SPARE_BYTES = 1L shl 20

        /**
         * Opens a journal. It throws an [IOException] if the file cannot be used, or another process uses it. A caller
         * that is cancelled meanwhile does not get the journal: call it where that cannot happen.
         */
        suspend fun open(file: File): Journal = withContext(Dispatchers.IO) {
            val whole = file.absoluteFile
            makeFolder(whole.parentFile)
            val journal = Journal(whole, Lock(File("$whole.lock")))
            try {
                journal.read()
                journal.rewrite()
            } catch (e: Throwable) {
                journal.channel?.close()
                journal.lock.release()
                throw e
            }
            journal
        }

        private fun line(key: String, value: JsonElement?): String =
            JsonArray(listOfNotNull(JsonPrimitive(key), value)).toString() + "\n"
    }
}

/** The right of one process to use a file. It ends with the process. */
private class Lock(file: File) {
    private val held = RandomAccessFile(file, "rw")

    init {
        val free = try {
            held.channel.tryLock() != null
        } catch (_: OverlappingFileLockException) {
            false // another device of this process has it
        }
        if (!free) {
            held.close()
            throw IOException("another device uses $file")
        }
    }

    fun release() = held.close()
}

internal fun makeFolder(folder: File?) {
    if (folder != null && !folder.isDirectory && !folder.mkdirs() && !folder.isDirectory) {
        throw IOException("the folder $folder cannot be made")
    }
}

/** Makes an empty file that only its user can read, instead of one that was left of an earlier attempt. */
internal fun createPrivate(file: File): FileChannel {
    val path = file.toPath()
    val options = setOf(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
    Files.deleteIfExists(path)
    if ("posix" in path.fileSystem.supportedFileAttributeViews()) {
        val mode = PosixFilePermissions.fromString("rw-------")
        return FileChannel.open(path, options, PosixFilePermissions.asFileAttribute(mode))
    }
    val channel = FileChannel.open(path, options)
    file.setReadable(false, false)
    file.setWritable(false, false)
    file.setReadable(true, true)
    file.setWritable(true, true)
    return channel
}

/** Puts a file in the place of another one, atomically. It is there after a power failure when [replace] returns. */
internal fun replace(from: File, to: File) {
    Files.move(from.toPath(), to.toPath(), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
    val folder = try {
        FileChannel.open(to.absoluteFile.parentFile.toPath(), StandardOpenOption.READ)
    } catch (_: IOException) {
        return // Windows opens no folders
    }
    folder.use { it.force(true) }
}

internal fun FileChannel.writeAll(bytes: ByteArray) {
    val left = java.nio.ByteBuffer.wrap(bytes)
    while (left.hasRemaining()) write(left)
}
