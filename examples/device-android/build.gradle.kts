plugins {
    id("com.android.application") version "8.13.0"
    kotlin("android") version "2.2.21"
    kotlin("plugin.serialization") version "2.2.21"
}

android {
    namespace = "com.example.farhand"
    compileSdk = 36
    defaultConfig {
        applicationId = "com.example.farhand"
        minSdk = 26
        targetSdk = 36
        versionCode = 1
        versionName = "1"
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
    sourceSets["main"].manifest.srcFile("src/main/AndroidManifest.xml")
}

kotlin {
    jvmToolchain(17)
}

dependencies {
    implementation("io.github.farhand:farhand-device-android:0.1.0")
}
