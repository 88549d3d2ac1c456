package io.github.farhand.android

import io.github.farhand.device.Device
import io.github.farhand.device.FarhandException
import io.github.farhand.device.State
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext

/** Runs devices for [DeviceService] and [DeviceJob]. A run lasts as long as one of them needs it. */
internal object Runs {
    private class Run(val job: Job) {
        var users = 0
    }

    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)
    private val runs = HashMap<Device, Run>() // guarded by itself

    /** Runs a device, or shares its run, until the run ends or the caller is cancelled. The last user ends the run. */
    suspend fun share(device: Device) {
        val run = synchronized(runs) {
            val shared = runs[device]
            val usable = shared?.takeIf { it.users > 0 && it.job.isActive } ?: begin(device, shared?.job)
            usable.also { it.users++ }
        }
        try {
            device.wake()
            run.job.join()
        } finally {
            val last = synchronized(runs) { --run.users == 0 }
            if (last) withContext(NonCancellable) { run.job.cancelAndJoin() }
        }
    }

    /** Begins a run after the one before, which may still be answering its calls. */
    private fun begin(device: Device, before: Job?): Run {
        val job = scope.launch {
            before?.join()
            runOrJoin(device)
        }
        val run = Run(job)
        runs[device] = run
        job.invokeOnCompletion { synchronized(runs) { if (runs[device] === run) runs.remove(device) } }
        return run
    }
}

/** Runs a device until it ends. If the app itself runs it already, it waits for the end of that run. */
private suspend fun runOrJoin(device: Device) {
    try {
        device.run()
    } catch (e: CancellationException) { // which is an IllegalStateException
        throw e
    } catch (_: IllegalStateException) {
        device.wake()
        device.state.first { it is State.Closed || it is State.Refused }
    } catch (_: FarhandException) {
        // State.Refused has it
    }
}
