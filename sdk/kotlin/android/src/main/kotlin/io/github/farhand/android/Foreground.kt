package io.github.farhand.android

import android.app.Notification
import android.app.Service
import android.content.ComponentName
import android.content.pm.PackageManager
import android.content.pm.ServiceInfo
import android.os.Build
import java.lang.reflect.InvocationTargetException

// Of Android 10 and later, which this module is not compiled with.
private const val ANDROID_10 = 29
internal const val LOCATION = 0x8
internal const val CAMERA = 0x40
internal const val MICROPHONE = 0x80
internal const val REMOTE_MESSAGING = 0x200

private val permissions = mapOf(
    LOCATION to listOf("android.permission.ACCESS_COARSE_LOCATION", "android.permission.ACCESS_FINE_LOCATION"),
    CAMERA to listOf("android.permission.CAMERA"),
    MICROPHONE to listOf("android.permission.RECORD_AUDIO"),
)

/** Returns those of the declared types whose permissions the person has granted. */
internal fun grantedTypes(declared: Int, granted: (String) -> Boolean): Int =
    permissions.entries.fold(declared) { types, (type, any) -> if (any.none(granted)) types and type.inv() else types }

/**
 * Puts a service in the foreground, with the types of its manifest that it may have now. Since Android 14 a type
 * without its permission is a [SecurityException], also that of the camera, the microphone or the location if the
 * service starts while the app is not seen: then its type is `remoteMessaging`.
 */
internal fun Service.toForeground(id: Int, notification: Notification) {
    val declared = if (Build.VERSION.SDK_INT >= ANDROID_10) declaredTypes() else 0
    if (declared == 0) return startForeground(id, notification)
    val types = grantedTypes(declared) { checkSelfPermission(it) == PackageManager.PERMISSION_GRANTED }
    try {
        startForeground(id, notification, if (types != 0) types else REMOTE_MESSAGING)
    } catch (e: SecurityException) {
        if (types == REMOTE_MESSAGING) throw e
        startForeground(id, notification, REMOTE_MESSAGING)
    }
}

private fun Service.declaredTypes(): Int = try {
    val info = packageManager.getServiceInfo(ComponentName(this, javaClass), 0)
    ServiceInfo::class.java.getMethod("getForegroundServiceType").invoke(info) as Int
} catch (_: PackageManager.NameNotFoundException) {
    0
}

private fun Service.startForeground(id: Int, notification: Notification, types: Int) {
    val int = Int::class.javaPrimitiveType
    val method = Service::class.java.getMethod("startForeground", int, Notification::class.java, int)
    try {
        method.invoke(this, id, notification, types)
    } catch (e: InvocationTargetException) {
        throw e.targetException
    }
}
