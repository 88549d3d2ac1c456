package io.github.farhand.android

import android.app.Application
import android.app.Notification
import android.app.Service
import android.app.job.JobInfo
import android.app.job.JobParameters
import android.app.job.JobScheduler
import android.content.ComponentName
import android.content.Intent
import android.content.pm.ServiceInfo
import android.net.ConnectivityManager
import android.os.Looper
import android.os.PowerManager
import io.github.farhand.device.Device
import io.github.farhand.device.Event
import io.github.farhand.device.State
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.junit.runner.RunWith
import org.robolectric.Robolectric
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.annotation.Config
import org.robolectric.shadow.api.Shadow
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import kotlin.test.AfterTest
import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertNotNull
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.hours

/** An app whose gateway cannot be reached, and whose device would wait for hours to try again. */
class TestApp :
    Application(),
    DeviceOwner {
    override val device = Device("http://127.0.0.1:9") {
        leastBackoff = 1000.hours
        mostBackoff = 1000.hours
    }

    override fun notification(): Notification = Notification.Builder(this, "channel").build()
}

@RunWith(RobolectricTestRunner::class)
@Config(sdk = [35], application = TestApp::class)
class AndroidTest {
    private val app = RuntimeEnvironment.getApplication() as TestApp

    @AfterTest
    fun stop() = runBlocking { app.device.stop() }

    private inline fun <reified S : State> awaitState() = runBlocking {
        withTimeout(LIMIT) { app.device.state.first { it is S } }
    }

    /** Expects that something makes the waiting device connect. */
    private fun awakes(act: () -> Unit) {
        awaitState<State.Waiting>()
        val connecting = CountDownLatch(1)
        val watching = CoroutineScope(Dispatchers.Default).launch(start = CoroutineStart.UNDISPATCHED) {
            app.device.events.first { it == Event.StateChanged(State.Connecting) }
            connecting.countDown()
        }
        act()
        shadowOf(Looper.getMainLooper()).idle()
        assertTrue(connecting.await(LIMIT, TimeUnit.MILLISECONDS), "the device still waits")
        watching.cancel()
    }

    private fun networkIsBack() {
        val networks = app.getSystemService(ConnectivityManager::class.java)
        for (callback in shadowOf(networks).networkCallbacks) callback.onAvailable(networks.activeNetwork)
    }

    private fun dozeChanges(idle: Boolean) {
        shadowOf(app.getSystemService(PowerManager::class.java)).setIsDeviceIdleMode(idle)
        app.sendBroadcast(Intent(PowerManager.ACTION_DEVICE_IDLE_MODE_CHANGED))
    }

    @Test
    fun `the service runs the device in the foreground, and wakes it`() {
        val service = Robolectric.buildService(DeviceService::class.java).create().startCommand(0, 1)
        assertNotNull(shadowOf(service.get()).lastForegroundNotification)
        awakes { networkIsBack() }
        awakes { dozeChanges(idle = false) }
        service.destroy()
        awaitState<State.Closed>()
        assertTrue(shadowOf(app.getSystemService(ConnectivityManager::class.java)).networkCallbacks.isEmpty())
    }

    @Test
    fun `a run outlives its first user, and ends with the last`() = runBlocking {
        val job = launch(Dispatchers.Default) { Runs.share(app.device) }
        awaitState<State.Waiting>()
        val service = launch(start = CoroutineStart.UNDISPATCHED) { Runs.share(app.device) }
        job.cancelAndJoin()
        assertTrue(service.isActive)
        awakes { app.device.wake() }
        service.cancelAndJoin()
        assertEquals(State.Closed, app.device.state.value)
        val next = launch(Dispatchers.Default) { Runs.share(app.device) }
        awaitState<State.Waiting>()
        app.device.stop()
        withTimeout(LIMIT) { next.join() }
    }

    @Test
    fun `the service has the types that the person has granted`() {
        val name = ComponentName(app, DeviceService::class.java)
        val info = ServiceInfo().apply {
            packageName = name.packageName
            this.name = name.className
        }
        val types = LOCATION or CAMERA or MICROPHONE or REMOTE_MESSAGING
        ServiceInfo::class.java.getField("mForegroundServiceType").setInt(info, types)
        shadowOf(app.packageManager).addOrUpdateService(info)
        shadowOf(app).grantPermissions("android.permission.CAMERA")
        val service = Robolectric.buildService(DeviceService::class.java).create().startCommand(0, 1)
        fun has() = Service::class.java.getMethod("getForegroundServiceType").invoke(service.get())
        assertEquals(CAMERA or REMOTE_MESSAGING, has())
        shadowOf(app).grantPermissions("android.permission.ACCESS_COARSE_LOCATION")
        service.startCommand(0, 2)
        assertEquals(LOCATION or CAMERA or REMOTE_MESSAGING, has())
        service.destroy()
    }

    @Test
    fun `a phone that falls asleep is left alone`() {
        val running = app.device.start(CoroutineScope(Dispatchers.Default))
        Wakes(app, app.device).use {
            awaitState<State.Waiting>()
            dozeChanges(idle = true)
            shadowOf(Looper.getMainLooper()).idle()
            assertTrue(app.device.state.value is State.Waiting)
            awakes { dozeChanges(idle = false) }
        }
        running.cancel()
    }

    @Test
    fun `the job runs the device until the system ends it`() {
        assertTrue(DeviceJob.schedule(app, 7))
        val job = app.getSystemService(JobScheduler::class.java).allPendingJobs.single()
        assertEquals(listOf(7L, 900_000L), listOf(job.id.toLong(), job.intervalMillis))
        assertEquals(JobInfo.NETWORK_TYPE_ANY, job.networkType)
        assertEquals(DeviceJob::class.java.name, job.service.className)

        val service = Robolectric.buildService(DeviceJob::class.java).create().get()
        val params = Shadow.newInstanceOf(JobParameters::class.java)
        assertTrue(service.onStartJob(params))
        awakes { networkIsBack() }
        assertTrue(service.onStopJob(params), "the job comes again")
        awaitState<State.Closed>()

        DeviceJob.cancel(app, 7)
        assertTrue(app.getSystemService(JobScheduler::class.java).allPendingJobs.isEmpty())
    }

    private companion object {
        const val LIMIT = 60_000L // ms
    }
}
