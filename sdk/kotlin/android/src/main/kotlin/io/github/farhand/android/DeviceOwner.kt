package io.github.farhand.android

import android.app.Application
import android.app.Notification
import android.content.Context
import io.github.farhand.device.Device

/** What an app's [Application] implements, so that [DeviceService] and [DeviceJob] share its device. */
public interface DeviceOwner {
    /** The device of this app. It is made once, and started by [DeviceService] and [DeviceJob]. */
    public val device: Device

    /** The notification of [DeviceService]. Its channel must exist. */
    public fun notification(): Notification
}

internal val Context.owner: DeviceOwner
    get() = checkNotNull(applicationContext as? DeviceOwner) { "the Application of this app is no DeviceOwner" }
