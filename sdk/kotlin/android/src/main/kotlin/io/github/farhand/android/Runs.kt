package io.github.farhand.android

import io.github.farhand.device.Device
import io.github.farhand.device.FarhandException
import io.github.farhand.device.State
import kotlinx.coroutines.flow.first

/** Runs a device until it ends. If it runs already, it waits for the end of that run. */
internal suspend fun runOrJoin(device: Device) {
    try {
        device.run()
    } catch (_: IllegalStateException) {
        device.wake()
        device.state.first { it is State.Closed || it is State.Refused }
    } catch (_: FarhandException) {
        // State.Refused has it
    }
}
