import io.github.farhand.device.Bounds
import io.github.farhand.device.Description
import io.github.farhand.device.Device
import io.github.farhand.device.FileCredentialStore
import io.github.farhand.device.pair
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.Serializable
import java.io.File
import kotlin.time.Duration.Companion.milliseconds

@Serializable
class Count(
    @Description("Where to stop") @Bounds(1.0, 100.0) val to: Int,
    @Description("Milliseconds between two numbers") val pause: Int = 100,
)

@Serializable
class Disk(@Description("A folder of this machine") val folder: String = "/")

@Serializable
class Space(val totalBytes: Long, val freeBytes: Long)

/** A device for any machine with Java 17: it pairs itself, counts, and says how full its disks are. */
fun main() = runBlocking {
    val gateway = System.getenv("FARHAND_URL") ?: "http://127.0.0.1:8080"
    val home = File(System.getProperty("user.home"), ".farhand-kotlin")
    val store = FileCredentialStore(File(home, "credential"))
    pair(gateway, store, {
        deviceName = "Kotlin example"
        tools = listOf("count", "disk_space")
    }) { code, _ -> println("Approve this device: farhand pair approve $code") }

    val device = Device(gateway) {
        credentials = store
        journal = File(home, "device.jsonl")
    }
    device.tool<Count>("count", "Count up, with progress.") { args ->
        for (n in 1..args.to) {
            delay(args.pause.milliseconds) // which ends when the caller cancels
            progress(n, args.to, "at $n")
        }
        "Counted to ${args.to}."
    }
    device.tool<Disk>("disk_space", "How full a disk is.", { readOnly = true }) { args ->
        val folder = File(args.folder)
        require(folder.isDirectory) { "${args.folder} is no folder" }
        Space(folder.totalSpace, folder.usableSpace)
    }
    launch { device.state.collect { println(it) } }
    device.run()
}
